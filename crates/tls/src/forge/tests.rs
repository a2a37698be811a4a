use super::*;

#[test]
fn names_are_hosts_and_nothing_else() {
    let longest = format!("{0}.{0}.{0}.{1}", "a".repeat(63), "b".repeat(61));
    for name in ["a.test", "A.TEST", "a_b.test", "xn--nxasmq6b.test", "a", &longest] {
        assert_eq!(Name::of(name), Some(Name::Dns(name.to_ascii_lowercase().into())), "{name}");
    }
    let long = format!("{}.test", "a".repeat(64));
    let bad = ["", ".", "a.test.", "*.test", "*", "a..test", "-a.test", "a b.test", "a\0.test", "192.0.2.1", "::1"];
    for name in bad.into_iter().chain([long.as_str(), "ä.test", "a/b", "a.test:443", &"a.".repeat(200)]) {
        assert_eq!(Name::of(name), None, "{name}");
    }
}
