use super::*;
use crate::value::{Type, Value};
use proptest::prelude::*;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

fn how(method: Method) -> Comparison {
    Comparison::by(method)
}

fn list(patterns: &[&str]) -> Arc<Reference> {
    Reference::new("list", false, patterns.iter().map(|text| (text, "")))
}

fn map(pairs: &[(&str, &str)]) -> Arc<Reference> {
    Reference::new("map", true, pairs.iter().copied())
}

/// The index of the pattern that a text matches, among enough others that the list counts as long.
fn find(how: Comparison, patterns: &[&str], text: &str, filler: usize) -> Option<usize> {
    let more: Vec<String> = (0..filler)
        .map(|n| match how.method {
            Method::Ip => format!("172.{}.{}.0/24", n / 256, n % 256),
            Method::Int | Method::Len => format!("{}", 100_000 + n),
            Method::Bin => format!("ff{n:04}"),
            _ => format!("~filler{n}"),
        })
        .collect();
    let all: Vec<&str> = patterns.iter().copied().chain(more.iter().map(String::as_str)).collect();
    let reference = list(&all);
    reference.reading(how, Some(Type::Str)).unwrap();
    let found = reference.matches(text.as_bytes()).remove(0).entry?;
    Some(found.id() as usize - 1)
}

#[test]
fn each_method_agrees_between_short_and_long_lists() {
    for filler in [0, 7, 30, 300] {
        let find = |method, patterns: &[&str], text: &str| find(how(method), patterns, text, filler);
        assert_eq!(find(Method::Str, &["a", "ab"], "ab"), Some(1));
        assert_eq!(find(Method::Str, &["a"], "A"), None);
        assert_eq!(find(Method::Beg, &["/a", "/api"], "/api/x"), Some(1), "the longest prefix");
        assert_eq!(find(Method::End, &[".png", ".gif"], "/x.gif"), Some(1));
        assert_eq!(find(Method::End, &["f", ".gif"], "/x.gif"), Some(0), "the first written");
        assert_eq!(find(Method::Sub, &["xyz", "dm"], "/admin"), Some(1));
        assert_eq!(find(Method::Dir, &["img"], "/a/img/b"), Some(0));
        assert_eq!(find(Method::Dir, &["img"], "/a/imgs/b"), None);
        assert_eq!(find(Method::Dir, &["/a/b/"], "/x/a/b?q"), Some(0), "a pattern of several parts");
        assert_eq!(find(Method::Dom, &["example"], "www.example.com:80"), Some(0));
        assert_eq!(find(Method::Dom, &["example.com"], "www.example.com:80"), Some(0));
        assert_eq!(find(Method::Dom, &["ample"], "www.example.com"), None);
        assert_eq!(find(Method::Reg, &["^b", "a+b"], "xaab"), Some(1));
        assert_eq!(find(Method::Int, &["5:9", "7", "12"], "7"), Some(0), "the first written");
        assert_eq!(find(Method::Int, &["7", "5:9"], "7"), Some(0));
        assert_eq!(find(Method::Int, &["7", ":3"], "-1"), Some(1));
        assert_eq!(find(Method::Len, &["4:", "2"], "ab"), Some(1));
        assert_eq!(find(Method::Bin, &["00", "4142"], "AB"), Some(1));
        assert_eq!(find(Method::Ip, &["10.0.0.0/8", "10.1.2.0/24"], "10.1.2.3"), Some(1), "the most specific");
        assert_eq!(find(Method::Ip, &["10.0.0.0/8", "10.1.2.0/24"], "10.9.2.3"), Some(0));
        assert_eq!(find(Method::Ip, &["10.0.0.0/8"], "11.9.2.3"), None);
        assert_eq!(find(Method::Ip, &["2001:db8::/32"], "2001:db8::7"), Some(0));
        assert_eq!(find(Method::Ip, &["10.1.2.0/24"], "::ffff:10.1.2.9"), Some(0));
    }
}

#[test]
fn case_is_ignored_where_asked() {
    for filler in [0, 30] {
        let find = |method, pattern: &str, text: &str| {
            find(Comparison { ignore_case: true, ..how(method) }, &[pattern], text, filler)
        };
        assert_eq!(find(Method::Str, "WWW.Example.com", "www.EXAMPLE.com"), Some(0));
        assert_eq!(find(Method::Sub, "ADMIN", "/the/admin"), Some(0));
        assert_eq!(find(Method::End, ".Png", "x.PNG"), Some(0));
        assert_eq!(find(Method::Dom, "Example", "www.eXample.com"), Some(0));
        assert_eq!(find(Method::Reg, "^ab", "ABc"), Some(0));
    }
}

#[test]
fn methods_that_have_a_number_are_never_compared_without_case() {
    for filler in [0, 100] {
        let find = |ignore_case, pattern: &str, text: &str| {
            find(Comparison { ignore_case, ..how(Method::Meth) }, &[pattern], text, filler).is_some()
        };
        for (pattern, text, with_case, without) in [
            ("TRACE", "TRACE", true, true),
            ("TRACE", "trace", false, false),
            ("trace", "TRACE", false, false),
            ("trace", "trace", true, true),
            ("trace", "Trace", false, true),
            ("PATCH", "patch", false, true),
            ("patch", "PATCH", false, true),
        ] {
            assert_eq!(find(false, pattern, text), with_case, "{pattern} {text}");
            assert_eq!(find(true, pattern, text), without, "-i {pattern} {text}");
        }
    }
}

#[test]
fn what_cannot_be_read_is_named_by_its_place() {
    let wrong = [
        (Method::Ip, "10.1", "example.com"),
        (Method::Int, "10", "9:1"),
        (Method::Bin, "10", "414"),
        (Method::Reg, "10", "("),
    ];
    for (method, right, wrong) in wrong {
        let reference = list(&[right, right, wrong]);
        let (at, _) = reference.reading(how(method), Some(Type::Str)).unwrap_err();
        assert_eq!(at, 2, "{wrong}");
        let (at, _) = map(&[("a", "1"), ("b", "x")]).reading(how(Method::Str), Some(Type::Int)).unwrap_err();
        assert_eq!(at, 1);
    }
}

#[test]
fn every_way_to_read_a_map_sees_a_change_or_none_does() {
    let nets = map(&[("10.0.0.0/8", "1")]);
    let text = nets.reading(how(Method::Str), Some(Type::Str)).unwrap();
    let net = nets.reading(how(Method::Ip), Some(Type::Int)).unwrap();
    assert_eq!(nets.summary().entries, 2, "counted for each way");
    let ip = Value::Ipv4([10, 1, 1, 1].into());
    assert_eq!(net.lookup(&ip), Some(Value::Int(1)));
    assert!(matches!(nets.add(None, [(&b"10.1.0.0/16"[..], &b"two"[..])]), Err(ChangeError::Value(_))));
    assert!(matches!(
        nets.add(None, [(&b"10.1.0.0/99"[..], &b"2"[..])]),
        Err(ChangeError::Pattern { how: Method::Ip, .. })
    ));
    assert!(!text.matches(&Value::str(b"10.1.0.0/99")) && !text.matches(&Value::str(b"10.1.0.0/16")));
    nets.add(None, [(&b"10.1.0.0/16"[..], &b"2"[..])]).unwrap();
    assert_eq!(
        (net.lookup(&ip), text.lookup(&Value::str(b"10.1.0.0/16"))),
        (Some(Value::Int(2)), Some(Value::string("2")))
    );
    nets.set(Which::Key(b"10.1.0.0/16"), b"3").unwrap();
    assert_eq!(net.lookup(&ip), Some(Value::Int(3)));
    assert!(matches!(nets.set(Which::Id(2), b"x"), Err(ChangeError::Value(_))));
    nets.remove(Which::Id(2)).unwrap();
    assert_eq!(net.lookup(&ip), Some(Value::Int(1)));
    assert_eq!(nets.remove(Which::Id(2)), Err(ChangeError::NotFound));
    assert_eq!(nets.set(Which::Key(b"nope"), b"1"), Err(ChangeError::NotFound));
}

#[test]
fn equal_patterns_are_entries_of_their_own_and_the_first_is_found() {
    let hosts = map(&[("b", "1"), ("b", "2"), ("c", "3")]);
    let reading = hosts.reading(how(Method::Str), Some(Type::Str)).unwrap();
    let value = |key: &str| reading.lookup(&Value::str(key.as_bytes()));
    assert_eq!(value("b"), Some(Value::string("1")));
    hosts.remove(Which::Id(1)).unwrap();
    assert_eq!(value("b"), Some(Value::string("2")));
    hosts.add(None, [(&b"b"[..], &b"4"[..])]).unwrap();
    hosts.set(Which::Key(b"b"), b"5").unwrap();
    let all: Vec<String> = hosts.view(None).from(0, 9).iter().map(|entry| format!("{entry:?}")).collect();
    assert_eq!(all, [r#"#2 "b" "5""#, r#"#3 "c" "3""#, r#"#4 "b" "5""#]);
    hosts.remove(Which::Key(b"b")).unwrap();
    assert_eq!((value("b"), hosts.view(None).len()), (None, 1));
}

#[test]
fn a_version_is_invisible_until_it_is_committed() {
    let hosts = map(&[("a", "old")]);
    let reading = hosts.reading(how(Method::Str), Some(Type::Str)).unwrap();
    let value = || reading.lookup(&Value::str(b"a"));
    let pair = |value: &'static str| [(&b"a"[..], value.as_bytes())];
    assert_eq!(hosts.add(Some(1), pair("x")), Err(ChangeError::Future));
    assert_eq!((hosts.prepare(), hosts.prepare()), (1, 2));
    hosts.add(Some(1), pair("one")).unwrap();
    hosts.add(Some(2), pair("two")).unwrap();
    assert_eq!(value(), Some(Value::string("old")));
    assert_eq!(hosts.view(Some(2)).len(), 1);
    assert_eq!(hosts.view(Some(7)).len(), 0);
    assert_eq!(hosts.summary().entries, 3, "those of all versions");
    assert_eq!((hosts.commit(0), hosts.commit(3)), (Err(ChangeError::OutOfRange), Err(ChangeError::OutOfRange)));
    hosts.commit(2).unwrap();
    assert_eq!(value(), Some(Value::string("two")));
    let summary = hosts.summary();
    assert_eq!((summary.current, summary.next, summary.entries), (2, 2, 1), "version 1 is gone");
    assert_eq!((hosts.commit(1), hosts.commit(2)), (Err(ChangeError::OutOfRange), Err(ChangeError::OutOfRange)));
    assert_eq!(hosts.add(Some(1), pair("x")), Err(ChangeError::OutOfRange));
    hosts.prepare();
    hosts.commit(3).unwrap();
    assert_eq!(value(), None, "a version without entries");
    assert!(!hosts.tidy());
}

#[test]
fn clearing_removes_the_entries_of_one_version() {
    let hosts = map(&[("a", "1"), ("b", "2")]);
    let reading = hosts.reading(how(Method::Beg), Some(Type::Str)).unwrap();
    hosts.prepare();
    hosts.add(Some(1), [(&b"a"[..], &b"new"[..])]).unwrap();
    hosts.clear(Some(1));
    assert_eq!((hosts.view(Some(1)).len(), hosts.view(None).len()), (0, 2));
    hosts.clear(None);
    assert!(!reading.matches(&Value::str(b"abc")));
    hosts.add(None, [(&b"a"[..], &b"again"[..])]).unwrap();
    assert_eq!(reading.lookup(&Value::str(b"abc")), Some(Value::string("again")));
}

#[test]
fn versions_go_on_where_their_numbers_begin_again() {
    let hosts = map(&[]);
    hosts.start_at(u32::MAX - 1);
    assert_eq!((hosts.prepare(), hosts.prepare()), (u32::MAX, 0));
    hosts.add(Some(u32::MAX), [(&b"a"[..], &b"1"[..])]).unwrap();
    hosts.add(Some(0), [(&b"a"[..], &b"2"[..])]).unwrap();
    hosts.commit(0).unwrap();
    assert_eq!(hosts.commit(u32::MAX), Err(ChangeError::OutOfRange));
    assert_eq!(hosts.view(None).from(0, 2)[0].value(), b"2");
}

#[test]
fn readers_see_whole_versions_while_others_commit() {
    let hosts = map(&[("a", "0"), ("b", "0")]);
    let exact = hosts.reading(how(Method::Str), Some(Type::Int)).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last = 0;
                while !stop.load(Relaxed) {
                    let Some(Value::Int(a)) = exact.lookup(&Value::str(b"a")) else { panic!("it is always there") };
                    let Some(Value::Int(b)) = exact.lookup(&Value::str(b"b")) else { panic!("it is always there") };
                    assert!(last <= a && a <= b, "{last} {a} {b}");
                    last = b;
                }
            });
        }
        for n in 1..=1000_u32 {
            let value = n.to_string();
            let version = hosts.prepare();
            hosts.add(Some(version), [(&b"a"[..], value.as_bytes()), (b"b", value.as_bytes())]).unwrap();
            hosts.commit(version).unwrap();
            hosts.tidy();
        }
        stop.store(true, Relaxed);
    });
    assert!(!hosts.tidy(), "nothing that was replaced is kept");
}

#[test]
fn rules_and_operators_change_one_list() {
    let list = list(&["q"]);
    let reading = list.reading(how(Method::Sub), Some(Type::Str)).unwrap();
    for n in 0..200 {
        list.set_or_add(format!("part{n}.").as_bytes(), b"").unwrap();
        list.set_or_add(format!("part{n}.").as_bytes(), b"").unwrap();
    }
    assert_eq!(list.view(None).len(), 201);
    for tidy in [false, true] {
        if tidy {
            list.tidy();
        }
        assert!(reading.matches(&Value::str(b"xpart199.x")) && !reading.matches(&Value::str(b"xpart200.x")));
    }
    list.remove(Which::Key(b"part7.")).unwrap();
    list.set_or_add(b"xpart7", b"").unwrap();
    assert!(!reading.matches(&Value::str(b"part7.")) && reading.matches(&Value::str(b"xpart7.")));
}

/// Whether a pattern matches, in a literal implementation of the manual's description of each method.
fn plainly(method: Method, pattern: &str, text: &str) -> bool {
    let between = |delimiters: &[char]| {
        let (mut parts, pattern) = (vec![text], pattern.trim_matches(delimiters));
        parts.extend(text.match_indices(delimiters).map(|(at, _)| &text[at + 1..]));
        parts.iter().any(|part| {
            !part.starts_with(delimiters)
                && !part.is_empty()
                && part.strip_prefix(pattern).is_some_and(|rest| rest.is_empty() || rest.starts_with(delimiters))
        })
    };
    match method {
        Method::Beg => text.starts_with(pattern),
        Method::End => text.ends_with(pattern),
        Method::Sub => text.contains(pattern),
        Method::Dir => between(&['/', '?']),
        Method::Dom => between(&['/', '?', '.', ':']),
        _ => text == pattern,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_is_changed_samples_find_what_is_written(
        steps in proptest::collection::vec((0_u8..10, "[ab/.]{1,3}", 0_u32..9), 1..120)
    ) {
        let methods = [Method::Str, Method::Beg, Method::End, Method::Sub, Method::Dir, Method::Dom, Method::Reg];
        let reference = map(&[]);
        for method in methods {
            reference.reading(how(method), Some(Type::Str)).unwrap();
        }
        let mut model: Vec<(u64, String, String)> = Vec::new();
        let mut next = 1;
        for (what, key, value) in steps {
            let value = value.to_string();
            let at = model.iter().position(|(_, known, _)| *known == key);
            match what {
                0..=4 => {
                    reference.add(None, [(key.as_bytes(), value.as_bytes())]).unwrap();
                    model.push((next, key.clone(), value));
                    next += 1;
                }
                5 => {
                    let done = reference.set(Which::Key(key.as_bytes()), value.as_bytes());
                    prop_assert_eq!(done.is_ok(), at.is_some());
                    model.iter_mut().filter(|entry| entry.1 == key).for_each(|entry| entry.2.clone_from(&value));
                }
                6 | 7 => {
                    prop_assert_eq!(reference.remove(Which::Key(key.as_bytes())).is_ok(), at.is_some());
                    model.retain(|entry| entry.1 != key);
                }
                8 => {
                    reference.tidy();
                }
                _ => if let Some((id, ..)) = at.map(|at| model.remove(at)) {
                    prop_assert!(reference.remove(Which::Id(id)).is_ok());
                }
            }
            let all: Vec<_> = reference.view(None).from(0, usize::MAX).iter()
                .map(|e| (e.id(), String::from_utf8(e.key().into()).unwrap(), String::from_utf8(e.value().into()).unwrap()))
                .collect();
            prop_assert_eq!(&all, &model);
            for text in [key.as_str(), "a/b.a", "ba", "/a.b/"] {
                for (method, found) in methods.into_iter().zip(reference.matches(text.as_bytes())) {
                    let found = found.entry.map(|entry| entry.id());
                    let mut fits = model.iter().filter(|(_, key, _)| match method {
                        Method::Reg => regex::Regex::new(key).unwrap().is_match(text),
                        _ => plainly(method, key, text),
                    });
                    match method {
                        // Any match will do.
                        Method::Sub => match found {
                            Some(found) => prop_assert!(fits.any(|(id, ..)| *id == found)),
                            None => prop_assert!(fits.next().is_none()),
                        },
                        Method::Beg => {
                            let longest = fits.max_by_key(|(id, key, _)| (key.len(), std::cmp::Reverse(*id)));
                            prop_assert_eq!(found, longest.map(|(id, ..)| *id), "{:?} {} {:?}", method, text, &model);
                        }
                        _ => prop_assert_eq!(found, fits.next().map(|(id, ..)| *id), "{:?} {} {:?}", method, text, &model),
                    }
                }
            }
        }
    }
}
