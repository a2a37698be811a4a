//! The same expressions evaluated by the real haproxy and by us.
//!
//! One configuration sets a header to each expression and answers with all of them; it is given to both. Skipped, and
//! said so, where there is no haproxy.

#[path = "../../../tests/reference.rs"]
mod reference;

mod support;

use penstock_rules::{ReplyBody, Verdict};
use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use support::{Stage, compile};

const PORT: u16 = 22_180;

const REQUEST: &str = "POST /some/Path.html?q=1&r=two;s=%41%20b&flag&q=last HTTP/1.1\r\n\
    Host: WWW.Example.com:8080\r\n\
    User-Agent: Very \"Ugly\" UA 1/2\r\n\
    X-A: v1,v2\r\n\
    X-A: v3, \"a,b\" ,v5\r\n\
    X-Num: 42abc\r\n\
    X-Neg: -7\r\n\
    X-Ip: 10.1.2.3, 192.168.1.77\r\n\
    X-Ip6: [2001:db8::1]:80\r\n\
    X-Ip6b: [2001:db8::2]\r\n\
    X-Ip6c: 2001:db8::3\r\n\
    X-Ip4p: 10.1.2.3:8080\r\n\
    X-Empty:\r\n\
    X-Json: {\"a\":{\"b\":[1,2.5,\"x\"]},\"t\":true,\"n\":17}\r\n\
    X-Long: f1_f2_f3__f5\r\n\
    X-Acc: de;q=0.5, fr-CA;q=0.8, en;q=0.8\r\n\
    Cookie: a=1; b=two; a=3; empty=\r\n\
    Authorization: Basic dGlnZXI6czNjcmV0\r\n\
    Content-Length: 19\r\n\
    \r\n\
    name=x&other=y%20z!";

struct Haproxy(Child);

impl Drop for Haproxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(config: &str, port: u16) -> Option<(Haproxy, std::path::PathBuf)> {
    let program = reference::haproxy_30()?;
    let path = std::env::temp_dir().join(format!("rules-differential-{}-{port}.cfg", std::process::id()));
    std::fs::write(&path, config).expect("the temporary directory takes files");
    let child =
        Command::new(program).arg("-db").arg("-f").arg(&path).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let Ok(child) = child else {
        eprintln!("SKIPPED: haproxy is not installed");
        return None;
    };
    let mut haproxy = Haproxy(child);
    let deadline = Instant::now() + Duration::from_secs(10);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if let Ok(Some(status)) = haproxy.0.try_wait() {
            let mut why = String::new();
            let _ = haproxy.0.stderr.take().expect("piped").read_to_string(&mut why);
            panic!("haproxy ended with {status}: {why}");
        }
        assert!(Instant::now() < deadline, "haproxy did not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    Some((haproxy, path))
}

fn ask(port: u16, request: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("haproxy listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    // Read to the end of the body; `Connection: close` would be one more field, and haproxy hides it from rules.
    let mut answer = Vec::new();
    let mut part = [0; 65536];
    let end = loop {
        let n = stream.read(&mut part).expect("haproxy answers");
        assert!(n > 0, "haproxy closed: {}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&part[..n]);
        let Some(end) = answer.windows(4).position(|w| w == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
        let len = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
        if answer.len() - end - 4 >= len.expect("an answer has a length") {
            break end;
        }
    };
    (String::from_utf8_lossy(&answer[..end]).into_owned(), answer[end + 4..].to_vec())
}

fn configuration(preamble: &str, expressions: &[&str], acls: &[&str]) -> String {
    let mut text = format!(
        "defaults\n  mode http\n  timeout client 5s\n  timeout server 5s\n  timeout connect 5s\n{preamble}\nfrontend f\n  bind 127.0.0.1:{PORT}\n  option http-buffer-request\n"
    );
    for (at, expression) in expressions.iter().enumerate() {
        text += &format!("  http-request set-var-fmt(txn.e{at}) '{expression}'\n");
    }
    for (at, acl) in acls.iter().enumerate() {
        text += &format!("  http-request set-var(txn.a{at}) str(yes) if {{ {acl} }}\n");
    }
    text += "  http-request return status 200 content-type text/plain lf-string \"";
    for at in 0..expressions.len() {
        text += &format!("%[var(txn.e{at})]|\\n");
    }
    for at in 0..acls.len() {
        text += &format!("%[var(txn.a{at})]|\\n");
    }
    text + "\"\n"
}

/// What both give, line by line; each list has its port.
fn compare(name: &str, preamble: &str, expressions: &[&str], acls: &[&str], port: u16) {
    let text = configuration(preamble, expressions, acls).replace(&format!(":{PORT}"), &format!(":{port}"));
    let compiled = compile(&text).fine();
    let mut stage = Stage::request(REQUEST);
    stage.conn.dst = Some(std::net::SocketAddr::from(([127, 0, 0, 1], port)));
    let verdict = stage.http_request(&compiled);
    let Verdict::Respond(_, reply) = verdict else { panic!("{verdict:?}") };
    let ReplyBody::Bytes(ours) = reply.body else { panic!("a body of bytes") };

    let Some((haproxy, path)) = start(&text, port) else { return };
    let (_, theirs) = ask(port, REQUEST);
    drop(haproxy);
    let _ = std::fs::remove_file(path);

    let lines =
        |body: &[u8]| -> Vec<String> { String::from_utf8_lossy(body).split("|\n").map(str::to_owned).collect() };
    let (ours, theirs) = (lines(&ours), lines(&theirs));
    assert_eq!(ours.len(), theirs.len(), "{name}: as many answers");
    let asked = expressions.iter().chain(acls);
    let differences: Vec<String> = asked
        .zip(ours.iter().zip(&theirs))
        .filter(|(_, (ours, theirs))| ours != theirs)
        .map(|(asked, (ours, theirs))| format!("{asked}\n    haproxy {theirs:?}\n    ours    {ours:?}"))
        .collect();
    assert!(
        differences.is_empty(),
        "{name}: {} of {} differ\n{}",
        differences.len(),
        ours.len() - 1,
        differences.join("\n")
    );
}

#[test]
fn fetches_give_what_haproxy_gives() {
    compare(
        "fetches",
        "userlist u\n  user tiger insecure-password s3cret\n  user lion insecure-password roar",
        &[
            "%[path]",
            "%[pathq]",
            "%[query]",
            "%[url]",
            "%[base]",
            "%[baseq]",
            "%[method]",
            "%[req.ver]",
            "%[req.hdr(host)]",
            "%[req.hdr(x-a)]",
            "%[req.hdr(x-a,1)]",
            "%[req.hdr(x-a,2)]",
            "%[req.hdr(x-a,3)]",
            "%[req.hdr(x-a,4)]",
            "%[req.hdr(x-a,5)]",
            "%[req.hdr(x-a,6)]",
            "%[req.hdr(x-a,-1)]",
            "%[req.hdr(x-a,-2)]",
            "%[req.hdr(x-a,-9)]",
            "%[req.fhdr(x-a)]",
            "%[req.fhdr(x-a,1)]",
            "%[req.fhdr(x-a,-2)]",
            "%[req.hdr_cnt(x-a)]",
            "%[req.fhdr_cnt(x-a)]",
            "%[req.hdr_cnt(none)]",
            "%[req.hdr_cnt(x-empty)]",
            "%[req.hdr_val(x-num)]",
            "%[req.hdr_val(x-neg)]",
            "%[req.hdr_val(x-a)]",
            "%[req.hdr_ip(x-ip)]",
            "%[req.hdr_ip(x-ip,1)]",
            "%[req.hdr_ip(x-ip6)]",
            "%[req.hdr_ip(x-ip6b)]",
            "%[req.hdr_ip(x-ip6c)]",
            "%[req.hdr_ip(x-ip4p)]",
            "%[req.hdr_ip(x-a)]",
            "%[req.hdr(none)]",
            "%[req.hdr(x-empty)]",
            "%[req.hdr_names]",
            "%[req.hdr_names(;)]",
            "%[req.cook(a)]",
            "%[req.cook(b)]",
            "%[req.cook(empty)]",
            "%[req.cook(none)]",
            "%[req.cook_cnt(a)]",
            "%[req.cook_val(a)]",
            "%[cook(b)]",
            "%[urlp(q)]",
            "%[urlp(r)]",
            "%[urlp(s)]",
            "%[urlp(flag)]",
            "%[urlp(none)]",
            "%[urlp_val(q)]",
            "%[url_param(r)]",
            "%[urlp(r,&)]",
            "%[req.body]",
            "%[req.body_len]",
            "%[req.body_size]",
            "%[req.body_param(name)]",
            "%[req.body_param(other)]",
            "%[src]",
            "%[dst]",
            "%[dst_port]",
            "%[fe_name]",
            "%[ssl_fc]",
            "%[http_auth(u)]",
            "%[http_auth_user]",
            "%[http_auth_pass]",
            "%[http_auth_type]",
            "%[base32]",
            "%[url32]",
            "%[base32+src,hex]",
            "%[url32+src,hex]",
            "%[always_true]",
            "%[always_false]",
            "%[bool(true)]",
            "%[int(42)]",
            "%[int(-42)]",
            "%[str(abc)]",
            "%[str(\"a,b)c\")]",
            "%[ipv4(1.2.3.4)]",
            "%[ipv6(2001:db8::1)]",
            "%[ipv6(::ffff:1.2.3.4)]",
            "%[ipv6(::1)]",
            "%[bin(414243)]",
            "%[bin(41004243)]",
            "%[meth(GET)]",
            "%[nbproc]",
            "%[proc]",
            "%[fc_http_major]",
            "%[http_first_req]",
            "%[req.proto_http]",
            "%[capture.req.method]",
            "%[capture.req.uri]",
            "%[capture.req.ver]",
            "%[var(txn.none)]",
            "%[var(txn.none,default)]",
            "%[env(NO_SUCH_VARIABLE)]",
            "%[fc_rcvd_proxy]",
            "%[req.hdrs,length]",
            "%[req.hdrs_bin,hex]",
            "%[src_is_local]",
            "%[ssl_fc_sni]",
            "%[ssl_c_used]",
            "%[hdr(x-a)]",
            "%[hdr_cnt(x-a)]",
            "%[hdr_val(x-num)]",
            "%[hdr_ip(x-ip)]",
            "%[stopping]",
        ],
        &[],
        PORT,
    );
}

#[test]
fn converters_give_what_haproxy_gives() {
    compare(
        "converters",
        "",
        &[
            "%[req.hdr(host),lower]",
            "%[path,upper]",
            "%[path,length]",
            "%[path,field(2,/)]",
            "%[path,field(1,/)]",
            "%[path,field(-1,/)]",
            "%[path,word(1,/)]",
            "%[path,word(2,/,0)]",
            "%[req.hdr(x-long),field(5,_)]",
            "%[req.hdr(x-long),field(2,_,0)]",
            "%[req.hdr(x-long),field(2,_,2)]",
            "%[req.hdr(x-long),field(-2,_,3)]",
            "%[req.hdr(x-long),field(-3,_,0)]",
            "%[req.hdr(x-long),field(9,_)]",
            "%[req.hdr(x-long),word(4,_)]",
            "%[req.hdr(x-long),word(2,_,0)]",
            "%[req.hdr(x-long),word(3,_,2)]",
            "%[req.hdr(x-long),word(-2,_,3)]",
            "%[req.hdr(x-long),word(-3,_,0)]",
            "%[req.hdr(x-long),word(9,_)]",
            "%[int(5),add(7)]",
            "%[int(5),sub(7)]",
            "%[int(5),mul(-7)]",
            "%[int(17),div(5)]",
            "%[int(17),div(0)]",
            "%[int(17),mod(5)]",
            "%[int(17),mod(0)]",
            "%[int(-17),div(5)]",
            "%[int(-17),mod(5)]",
            "%[int(5),neg]",
            "%[int(5),cpl]",
            "%[int(6),and(3)]",
            "%[int(6),or(1)]",
            "%[int(6),xor(3)]",
            "%[int(6),odd]",
            "%[int(6),even]",
            "%[int(6),bool]",
            "%[int(0),not]",
            "%[int(9223372036854775807),add(1)]",
            "%[int(-9223372036854775807),sub(9)]",
            "%[int(9223372036854775807),mul(2)]",
            "%[str(12ab),add(1)]",
            "%[str(ab),add(1)]",
            "%[str(-12),add(1)]",
            "%[int(5),hex]",
            "%[bin(414243),hex]",
            "%[str(ff),hex2i]",
            "%[str(-1),hex2i]",
            "%[str(xyz),hex2i]",
            "%[str(1fxyz),hex2i]",
            "%[int(1700000000123456),http_date(0,us)]",
            "%[int(258),htonl,hex]",
            "%[str(hello),base64]",
            "%[str(aGVsbG8=),b64dec]",
            "%[str(aGVsbG8),ub64dec]",
            "%[bin(fbff),ub64enc]",
            "%[str(a b/c~),url_enc]",
            "%[str(a%20b+c?d+e),url_dec]",
            "%[str(a+b),url_dec(1)]",
            "%[str(%zz),url_dec]",
            "%[str(hello),sha1,hex]",
            "%[str(hello),sha2,hex]",
            "%[str(hello),sha2(512),hex]",
            "%[str(hello),sha2(224),hex]",
            "%[str(hello),digest(md5),hex]",
            "%[str(hello),digest(sha256),hex]",
            "%[str(hello),hmac(sha256,a2V5),hex]",
            "%[str(hello),crc32]",
            "%[str(hello),crc32(1)]",
            "%[str(hello),crc32c]",
            "%[str(hello),djb2]",
            "%[str(hello),djb2(1)]",
            "%[str(hello),sdbm]",
            "%[str(hello),sdbm(1)]",
            "%[str(hello),wt6]",
            "%[str(hello),wt6(1)]",
            "%[str(hello),xxh32]",
            "%[str(hello),xxh32(7)]",
            "%[str(hello),xxh64]",
            "%[str(hello),xxh64(7)]",
            "%[str(hello),xxh3]",
            "%[str(hello),xxh3(7)]",
            "%[src,ipmask(8)]",
            "%[src,ipmask(255.255.0.0)]",
            "%[str(1.2.3.4),ipmask(16)]",
            "%[str(2001:db8::1),ipmask(8,32)]",
            "%[str(2001:db8::1),ipmask(8)]",
            "%[int(300),ipmask(24)]",
            "%[str(hello),bytes(1)]",
            "%[str(hello),bytes(1,2)]",
            "%[str(hello),bytes(9)]",
            "%[bin(01020304050607),be2dec(:,2)]",
            "%[bin(01020304050607),be2dec(-,2,1)]",
            "%[bin(01020304050607),be2dec(,2,1)]",
            "%[bin(7f000001),be2dec(.,1)]",
            "%[bin(01020304050607),be2hex]",
            "%[bin(01020304050607),be2hex(:,2)]",
            "%[bin(01020304050607),be2hex(--,2,1)]",
            "%[bin(0102030405060708),be2hex(,3,1)]",
            "%[str(xxhellox),ltrim(x)]",
            "%[str(xxhellox),rtrim(x)]",
            "%[str(xxx),rtrim(x)]",
            "%[req.hdr(user-agent),json]",
            "%[req.hdr(user-agent),json(utf8s)]",
            "%[req.hdr(x-json),json_query($.t)]",
            "%[req.hdr(x-json),json_query($.n)]",
            "%[req.hdr(x-acc),language(es;fr;en)]",
            "%[req.fhdr(x-acc),language(es;fr;en)]",
            "%[req.fhdr(x-acc),language(pt,xx)]",
            "%[req.hdr(host),host_only]",
            "%[req.hdr(host),port_only]",
            "%[str([::1]:80),host_only]",
            "%[str([::1]),port_only]",
            "%[str(a),iif(x,y)]",
            "%[ssl_fc,iif(https,http)]",
            "%[always_true,iif(https,http)]",
            "%[str(a//b///c),regsub(/+,/,g)]",
            "%[str(a//b///c),regsub(/+,/)]",
            "%[str(fooBAR12),regsub(\"(foo|bar)([0-9]+)?\",\"<\\2\\1>\",gi)]",
            "%[str(abc),regsub(x,y)]",
            "%[str(abc),regsub(b*,-,g)]",
            "%[int(1700000000),http_date]",
            "%[int(1700000000),utime(%Y-%m-%d %H:%M:%S)]",
            "%[int(1700000000),utime(%a %A %b %B %e %j %p %I %y %u %w)]",
            "%[int(1700000000),utime(%D %R %T %F %C %h %n%t%%)]",
            "%[int(1700000000123),http_date(0,ms)]",
            "%[int(0),http_date(86400)]",
            "%[str(b),set-var(txn.q),length]",
            "%[str(b),strcmp(txn.q)]",
            "%[str(a),concat(<,txn.q,>)]",
            "%[str(a),add_item(\",\",txn.q,!)]",
            "%[str(),add_item(\",\",txn.q,!)]",
            "%[str(b),secure_memcmp(txn.q)]",
            "%[str(a),concat(,,z)]",
            "%[bin(4100ff43),lower]",
            "%[str(abc),cut_crlf]",
            "%[int(5),add(txn.none)]",
        ],
        &[],
        PORT + 1,
    );
}

#[test]
fn acls_match_as_haproxy_matches() {
    let list = std::env::temp_dir().join(format!("rules-differential-{}.lst", std::process::id()));
    std::fs::write(&list, "# comment\n  /some/Path.html\n#/never\n\n/other\n").unwrap();
    let from_file = format!("path -f {}", list.display());
    let from_file_ignoring_case = format!("path,lower -i -f {}", list.display());
    compare(
        "acls",
        "userlist u\n  user tiger insecure-password s3cret groups cats\n  group cats\n  group dogs",
        &[],
        &[
            "path /some/Path.html",
            "path /some/path.html",
            "path -i /some/path.html",
            "path_beg /some",
            "path_beg -i /SOME",
            "path_end .html .png",
            "path_end .htm",
            "path_sub Pat",
            "path_sub -i pat",
            "path_dir some",
            "path_dir Path.html",
            "path_dir Path",
            "path_dir /some/",
            "path_dom html",
            "path_dom some",
            "path_reg ^/[a-z]+/P",
            "path_reg -i ^/[a-z]+/p",
            "path_len 15",
            "path_len gt 15",
            "path_len ge 15",
            "path_len lt 16",
            "path_len le 14",
            "path_len 10:20",
            "path_len :14",
            "path_len 16:",
            "path -m beg /some",
            "path -m found",
            "hdr(none) -m found",
            "hdr(x-empty) -m found",
            "hdr(host) WWW.Example.com:8080",
            "hdr(host) -i www.example.com:8080",
            "hdr_beg(host) WWW.",
            "hdr_end(host) :8080",
            "hdr_dom(host) -i example",
            "hdr_dom(host) -i example.com",
            "hdr_dom(host) -i xample",
            "hdr_dom(host) -i .com",
            "hdr_dir(host) x",
            "hdr(x-a) v1",
            "hdr(x-a) v2",
            "hdr(x-a) v3",
            "hdr(x-a) v4",
            "hdr(x-a) v5",
            "hdr(x-a,1) v1",
            "hdr(x-a,1) v2",
            "hdr_sub(x-a) a,b",
            "req.fhdr(x-a) -m sub v1,v2",
            "hdr_cnt(x-a) eq 5",
            "hdr_cnt(x-a) gt 5",
            "hdr_cnt(none) 0",
            "hdr_val(x-num) 42",
            "hdr_val(x-num) ge 40",
            "hdr_val(x-neg) lt 0",
            "hdr_ip(x-ip) 10.0.0.0/8",
            "hdr_ip(x-ip) 192.168.0.0/16",
            "hdr_ip(x-ip) 172.16.0.0/12",
            "hdr_ip(x-ip6) 2001:db8::/32",
            "src 127.0.0.0/8",
            "src 127.0.0.1",
            "src 127.1",
            "src 10.0.0.0/8 127.0.0.1",
            "src ::1",
            "src ::ffff:127.0.0.1",
            "src 10.0.0.0/8",
            "method POST",
            "method GET",
            "method post",
            "cook(a) 1",
            "cook(a) 3",
            "cook(a) 2",
            "cook_beg(b) t",
            "cook(empty) -m found",
            "cook(none) -m found",
            "cook_val(a) 3",
            "urlp(q) 1",
            "urlp(q) last",
            "urlp(r) two",
            "urlp_val(q) 1",
            "urlp(none) -m found",
            "url_beg /some",
            "url_sub %41",
            "base_end html",
            "base -m reg ^WWW",
            "always_true",
            "always_false",
            "int(5) gt 4",
            "int(5) 1:5",
            "int(5) 6:",
            "int(-5) lt 0",
            "str(abc) abc",
            "str(abc) -m len 3",
            "str(abc) -m bin 616263",
            "bin(616263) -m bin 616263",
            "str(5) -m int 5",
            "str(5) -m int gt 4",
            "str(1.2.3.4) -m ip 1.2.0.0/16",
            "int(1) -m bool",
            "int(0) -m bool",
            "str(1) -m bool",
            "path,lower /some/path.html",
            "path,length gt 3",
            "http_auth(u)",
            "http_auth_group(u) cats",
            "http_auth_group(u) dogs",
            "req.proto_http",
            "req.ver 1.1",
            "req.ver 1.0",
            "dst_port 22182",
            "req.body -m sub name=",
            "path -- -i",
            "str(-i) -- -i",
            "path_beg -i -m str /SOME/path.HTML",
            "hdr_beg(host) -m end 8080",
            "str(/images/png/logo/32x32.png) -m dir /images/png",
            "str(/images/png/logo/32x32.png) -m dir png",
            "str(/images/png/logo/32x32.png) -m dir logo/32x32.png",
            "str(/images/png/logo/32x32.png) -m dir 32x32",
            "str(http://www1.dc-eu.example.com:80/blah) -m dom www1",
            "str(http://www1.dc-eu.example.com:80/blah) -m dom dc-eu.example:80",
            "str(http://www1.dc-eu.example.com:80/blah) -m dom :www1:",
            "str(http://www1.dc-eu.example.com:80/blah) -m dom eu",
            "str(http://www1.dc-eu.example.com:80/blah) -m dom dc-eu.example",
            "src,ipmask(8) 127.0.0.0",
            "var(txn.none) -m found",
            &from_file,
            &from_file_ignoring_case,
        ],
        PORT + 2,
    );
    let _ = std::fs::remove_file(list);
}
