//! Users and groups by name (getpwnam(3), getgrnam(3)).

use std::{ffi::CString, io, mem::MaybeUninit};

/// What a process needs to become a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// The user's number.
    pub uid: u32,
    /// The number of the user's primary group.
    pub gid: u32,
}

/// A group by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// The group's number.
    pub gid: u32,
}

/// Strings of one account entry; an entry that is larger fails with `ERANGE`.
const ENTRY_MAX: usize = 64 * 1024;

/// Looks a user up; `None` when there is none of that name.
///
/// # Errors
/// The name has a NUL in it, or the system cannot look it up.
pub fn user(name: &str) -> io::Result<Option<User>> {
    let name = CString::new(name)?;
    let mut entry = MaybeUninit::<libc::passwd>::uninit();
    let mut strings = vec![0; ENTRY_MAX];
    let mut found = std::ptr::null_mut();
    // SAFETY: every pointer is valid for the call, and `strings.len()` is the length of `strings`.
    let error =
        unsafe { libc::getpwnam_r(name.as_ptr(), entry.as_mut_ptr(), strings.as_mut_ptr(), strings.len(), &mut found) };
    match (error, found.is_null()) {
        // SAFETY: on success with a result, `found` is `entry`, which getpwnam_r has filled.
        (0, false) => Ok(Some(unsafe { User { uid: (*found).pw_uid, gid: (*found).pw_gid } })),
        (0, true) => Ok(None),
        (error, _) => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Looks a group up; `None` when there is none of that name.
///
/// # Errors
/// The name has a NUL in it, or the system cannot look it up.
pub fn group(name: &str) -> io::Result<Option<Group>> {
    let name = CString::new(name)?;
    let mut entry = MaybeUninit::<libc::group>::uninit();
    let mut strings = vec![0; ENTRY_MAX];
    let mut found = std::ptr::null_mut();
    // SAFETY: every pointer is valid for the call, and `strings.len()` is the length of `strings`.
    let error =
        unsafe { libc::getgrnam_r(name.as_ptr(), entry.as_mut_ptr(), strings.as_mut_ptr(), strings.len(), &mut found) };
    match (error, found.is_null()) {
        // SAFETY: on success with a result, `found` is `entry`, which getgrnam_r has filled.
        (0, false) => Ok(Some(unsafe { Group { gid: (*found).gr_gid } })),
        (0, true) => Ok(None),
        (error, _) => Err(io::Error::from_raw_os_error(error)),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn root_is_zero_and_a_stranger_is_none() {
        assert_eq!(super::user("root").unwrap(), Some(super::User { uid: 0, gid: 0 }));
        assert_eq!(super::group("root").unwrap(), Some(super::Group { gid: 0 }));
        assert_eq!(super::user("no-such-user-here").unwrap(), None);
        assert!(super::user("nul\0inside").is_err());
    }
}
