//! The named places where something derived from secrets becomes public: verdicts on results, which the caller learns
//! and the code may branch on. Nothing else that depends on a secret may reach a branch or an address; the test in
//! `ctgrind` runs whole operations with their secrets undefined, and only these places define anything.

/// Returns the value, which is public from here on.
#[inline(always)]
#[cfg_attr(not(all(test, target_arch = "x86_64", not(miri))), expect(unused_mut))]
pub(crate) fn public<T: Copy>(mut verdict: T) -> T {
    #[cfg(all(test, target_arch = "x86_64", not(miri)))]
    crate::ctgrind::public(&mut verdict);
    verdict
}
