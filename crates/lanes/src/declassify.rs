//! Where a consequence of secrets becomes public, by name: a result's verdict, which the caller is told and the code may
//! branch on. Nothing else that depends on a secret may reach a branch or an address; the test in `ctgrind` runs whole
//! operations with their secrets undefined, and these are the only places that define anything.

/// The value, public from here on.
#[inline(always)]
#[cfg_attr(not(all(test, target_arch = "x86_64", not(miri))), expect(unused_mut))]
pub(crate) fn public<T: Copy>(mut verdict: T) -> T {
    #[cfg(all(test, target_arch = "x86_64", not(miri)))]
    crate::ctgrind::public(&mut verdict);
    verdict
}
