//! The local time zone, which the standard library leaves out.

use std::mem::MaybeUninit;

/// Seconds that local time is ahead of UTC at that moment (`TZ`, /etc/localtime).
pub fn local_offset(unix_seconds: i64) -> i32 {
    let mut broken_down = MaybeUninit::<libc::tm>::uninit();
    // SAFETY: both pointers are valid for the call; the result is NULL or the structure that was filled.
    unsafe {
        if libc::localtime_r(&unix_seconds, broken_down.as_mut_ptr()).is_null() {
            return 0;
        }
        broken_down.assume_init().tm_gmtoff as i32
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_offset_is_less_than_a_day() {
        assert!(super::local_offset(1_700_000_000).abs() < 86_400);
    }
}
