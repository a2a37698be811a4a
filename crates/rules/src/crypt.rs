//! crypt(3) password hashes: `$5$` and `$6$` (SHA-crypt) and `$1$` (MD5).
//!
//! Written from Ulrich Drepper's "Unix crypt using SHA-256 and SHA-512" and Poul-Henning Kamp's MD5 scheme; the tests
//! compare with the output of openssl(1). Traditional DES is refused: it only uses eight characters, 56 bits.

use aws_lc_rs::digest;
use md5::{Digest as _, Md5};
use subtle::ConstantTimeEq as _;

/// The most rounds that the format allows, which take minutes per check.
const MAX_ROUNDS: u32 = 999_999_999;

/// The longest password that crypt(3) of Debian hashes (libxcrypt's `CRYPT_MAX_PASSPHRASE_SIZE`). The cost of each
/// round grows with the password, whose length the client chooses.
const PASSWORD_MAX: usize = 512;

/// After this many rounds, some hundred microseconds, the check asks whether its result is still wanted.
const ROUNDS_AT_ONCE: u32 = 1024;

/// The stored form of a password in a userlist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hash {
    /// `insecure-password`.
    Clear(Vec<u8>),
    /// `$5$` and `$6$`.
    Sha {
        /// Whether the hash is SHA-512 rather than SHA-256.
        wide: bool,
        /// The number of rounds.
        rounds: u32,
        /// The salt.
        salt: Vec<u8>,
        /// The result, encoded.
        result: Vec<u8>,
    },
    /// `$1$`.
    Md5 {
        /// The salt.
        salt: Vec<u8>,
        /// The result, encoded.
        result: Vec<u8>,
    },
}

impl Hash {
    /// Parses a hash written by crypt(3).
    ///
    /// # Errors
    ///
    /// Why it cannot be checked.
    pub fn parse(text: &str) -> Result<Hash, String> {
        let parts: Vec<&str> = text.split('$').collect();
        match parts[..] {
            ["", id @ ("5" | "6"), ref rest @ ..] => {
                let (rounds, rest) = match rest {
                    [first, rest @ ..] if first.starts_with("rounds=") => (first["rounds=".len()..].parse().ok(), rest),
                    rest => (Some(5000), rest),
                };
                let ([salt, result], Some(rounds)) = (rest, rounds) else {
                    return Err(format!("'{text}' is not a complete ${id}$ hash"));
                };
                let rounds = u32::max(rounds, 1000);
                if rounds > MAX_ROUNDS {
                    return Err(format!("{rounds} rounds are more than crypt(3) allows: {MAX_ROUNDS}"));
                }
                let wide = id == "6";
                if result.len() != if wide { 86 } else { 43 } {
                    return Err(format!("'{text}' is not a complete ${id}$ hash"));
                }
                let salt = salt.as_bytes()[..salt.len().min(16)].to_vec();
                Ok(Hash::Sha { wide, rounds, salt, result: result.as_bytes().to_vec() })
            }
            ["", "1", salt, result] if result.len() == 22 => {
                let salt = salt.as_bytes()[..salt.len().min(8)].to_vec();
                Ok(Hash::Md5 { salt, result: result.as_bytes().to_vec() })
            }
            ["", "2a" | "2b" | "2y", ..] => {
                Err("bcrypt is not supported: make a $6$ hash with 'mkpasswd -m sha-512'".into())
            }
            ["", "y" | "7" | "gy", ..] => {
                Err("yescrypt is not supported: make a $6$ hash with 'mkpasswd -m sha-512'".into())
            }
            [_] if text.len() == 13 => {
                Err("a DES hash protects nothing and is not supported: make a $6$ hash with 'mkpasswd -m sha-512'"
                    .into())
            }
            _ => Err(format!("'{text}' is not a password hash; 'insecure-password' takes clear text")),
        }
    }

    /// Whether the hash is that of `password`; `None` if the check was given up. The time does not depend on where the two
    /// differ.
    pub fn check(&self, password: &[u8], given_up: &dyn Fn() -> bool) -> Option<bool> {
        let right = match self {
            Hash::Clear(clear) => clear.ct_eq(password),
            _ if password.len() > PASSWORD_MAX => return Some(false),
            Hash::Sha { wide, rounds, salt, result } => {
                let algorithm = if *wide { &digest::SHA512 } else { &digest::SHA256 };
                sha_crypt(algorithm, *wide, *rounds, salt, password, given_up)?.ct_eq(result)
            }
            Hash::Md5 { salt, result } => md5_crypt(salt, password).ct_eq(result),
        };
        Some(right.into())
    }

    /// Whether a check is slow enough for its result to be worth remembering.
    pub fn is_slow(&self) -> bool {
        !matches!(self, Hash::Clear(_))
    }
}

fn sha_crypt(
    algorithm: &'static digest::Algorithm,
    wide: bool,
    rounds: u32,
    salt: &[u8],
    password: &[u8],
    given_up: &dyn Fn() -> bool,
) -> Option<Vec<u8>> {
    let hash = |parts: &[&[u8]]| {
        let mut context = digest::Context::new(algorithm);
        parts.iter().for_each(|part| context.update(part));
        context.finish()
    };
    // A digest, repeated to `len` bytes.
    let stretch = |digest: &[u8], len: usize| -> Vec<u8> { digest.iter().copied().cycle().take(len).collect() };

    let b = hash(&[password, salt, password]);
    let mut context = digest::Context::new(algorithm);
    context.update(password);
    context.update(salt);
    context.update(&stretch(b.as_ref(), password.len()));
    let mut bits = password.len();
    while bits > 0 {
        context.update(if bits & 1 == 1 { b.as_ref() } else { password });
        bits >>= 1;
    }
    let mut a = context.finish();

    let mut context = digest::Context::new(algorithm);
    password.iter().for_each(|_| context.update(password));
    let p = stretch(context.finish().as_ref(), password.len());
    let mut context = digest::Context::new(algorithm);
    (0..16 + usize::from(a.as_ref()[0])).for_each(|_| context.update(salt));
    let s = stretch(context.finish().as_ref(), salt.len());

    for round in 0..rounds {
        if round % ROUNDS_AT_ONCE == 0 && given_up() {
            return None;
        }
        let mut context = digest::Context::new(algorithm);
        context.update(if round % 2 == 1 { &p } else { a.as_ref() });
        if round % 3 != 0 {
            context.update(&s);
        }
        if round % 7 != 0 {
            context.update(&p);
        }
        context.update(if round % 2 == 1 { a.as_ref() } else { &p });
        a = context.finish();
    }
    let a = a.as_ref();
    let mut out = Vec::with_capacity(86);
    if wide {
        // The published order: each row is the previous one, rotated and incremented.
        let (mut x, mut y, mut z) = (0, 21, 42);
        for _ in 0..21 {
            encode(&mut out, &[a[x], a[y], a[z]], 4);
            (x, y, z) = (y + 1, z + 1, x + 1);
        }
        encode(&mut out, &[0, 0, a[63]], 2);
    } else {
        let (mut x, mut y, mut z) = (0, 10, 20);
        for _ in 0..10 {
            encode(&mut out, &[a[x], a[y], a[z]], 4);
            (x, y, z) = (z + 1, x + 1, y + 1);
        }
        encode(&mut out, &[0, a[31], a[30]], 3);
    }
    Some(out)
}

fn md5_crypt(salt: &[u8], password: &[u8]) -> Vec<u8> {
    let inner = Md5::new().chain_update(password).chain_update(salt).chain_update(password).finalize();
    let mut context = Md5::new().chain_update(password).chain_update(b"$1$").chain_update(salt);
    for at in (0..password.len()).step_by(16) {
        context.update(&inner[..(password.len() - at).min(16)]);
    }
    let mut bits = password.len();
    while bits > 0 {
        context.update(if bits & 1 == 1 { &[0][..] } else { &password[..1] });
        bits >>= 1;
    }
    let mut a = context.finalize();
    for round in 0..1000 {
        let mut context = Md5::new();
        context.update(if round % 2 == 1 { password } else { a.as_slice() });
        if round % 3 != 0 {
            context.update(salt);
        }
        if round % 7 != 0 {
            context.update(password);
        }
        context.update(if round % 2 == 1 { a.as_slice() } else { password });
        a = context.finalize();
    }
    let mut out = Vec::with_capacity(22);
    for [x, y, z] in [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]] {
        encode(&mut out, &[a[x], a[y], a[z]], 4);
    }
    encode(&mut out, &[0, 0, a[11]], 2);
    out
}

/// Crypt's base 64: six bits per character, starting from the low end of three bytes.
fn encode(out: &mut Vec<u8>, bytes: &[u8; 3], characters: usize) {
    const DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut bits = u32::from(bytes[0]) << 16 | u32::from(bytes[1]) << 8 | u32::from(bytes[2]);
    for _ in 0..characters {
        out.push(DIGITS[(bits & 63) as usize]);
        bits >>= 6;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Created with `openssl passwd` and crypt(3) of glibc.
    const KNOWN: &[(&str, &str)] = &[
        ("Hello world!", "$1$saltstri$YMyguxXMBpd2TEZ.vS/3q1"),
        ("Hello world!", "$5$saltstring$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5"),
        (
            "Hello world!",
            "$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1",
        ),
        ("Hello world!", "$5$rounds=10000$saltstringsaltst$3xv.VbSHBb41AL9AvLeujZkZRBAwqFMz2.opqey6IcA"),
        (
            "Hello world!",
            "$6$rounds=10000$saltstringsaltst$OW1/O6BYHV6BcXZu8QVeXbDWra3Oeqh0sbHbbMCVNSnCM/UrjmM0Dp8vOuZeHBy/\
             YTBmSK6H9qs/y3RnOaw5v.",
        ),
        ("x", "$1$saltstri$4yysRi9x7/n75C/JawK2C."),
        ("", "$1$saltstri$ciR2otLVXV8I9sOPWbLTc1"),
        (LONG, "$1$saltstri$rDXZ20IjHeoduRsjeN9.h/"),
        (LONG, "$5$saltstring$AnLij5mBxDa1WWU2J5MRKZPntySjjErweG9LII0eYC."),
        (LONG, "$6$saltstring$b1EY2MxdqXwEGib0AkwOI9QMe0FuoZWhqRyQZkNz4KTP9Ap.bv/4baz/kcpisLUz2XSYww/iNA2Cf.myar5Vj/"),
    ];
    const LONG: &str = "a rather long password that is past sixteen and sixty-four bytes in length, indeed";

    #[test]
    fn known_hashes_are_recognised() {
        for (password, hash) in KNOWN {
            let check = |password: &[u8]| Hash::parse(hash).unwrap().check(password, &|| false);
            assert_eq!(check(password.as_bytes()), Some(true), "{hash}");
            assert_eq!(check(b"other"), Some(false), "{hash}");
        }
    }

    #[test]
    fn a_check_is_given_up_within_some_rounds_and_a_password_too_long_for_crypt_is_wrong_at_once() {
        let asked = std::cell::Cell::new(0);
        let given_up = || asked.replace(asked.get() + 1) == 3;
        let many = format!("$6$rounds=999999999$salt${}", "x".repeat(86));
        assert_eq!(Hash::parse(&many).unwrap().check(b"password", &given_up), None);
        assert_eq!(asked.get(), 4);
        assert_eq!(Hash::parse(&many).unwrap().check(&[b'x'; 513], &|| false), Some(false));
    }

    #[test]
    fn what_cannot_be_checked_is_refused_with_a_reason() {
        for (hash, word) in [
            ("k6y3o.eP8JlSY", "DES"),
            ("$2y$10$abcdefghijklmnopqrstuv", "bcrypt"),
            ("$y$j9T$x$y", "yescrypt"),
            ("$6$rounds=1000000000$salt$x", "rounds"),
            ("$6$salt$short", "complete"),
            ("secret", "insecure-password"),
        ] {
            let reason = Hash::parse(hash).unwrap_err();
            assert!(reason.contains(word), "{hash}: {reason}");
        }
    }
}
