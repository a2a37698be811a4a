//! The statistics page as people see it: in a browser, wide and narrow, light and dark, under traffic; and its forms, from here
//! and from elsewhere.

mod common;

use common::{
    Place,
    browser::Browser,
    free_port, penstock,
    running::{USR1, signal_to},
};
use std::{
    io::{Read, Write},
    net::TcpStream,
    process::Child,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// A server with a page, and clients that ask for something all the time.
struct Served {
    child: Child,
    stats: u16,
    evil: u16,
    ends: Arc<AtomicBool>,
    clients: Option<JoinHandle<()>>,
    _place: Place,
}

impl Served {
    fn start(name: &str) -> Served {
        let place = Place::new(name);
        let [stats, www, origin, evil] = [free_port(), free_port(), free_port(), free_port()];
        let page = place.file(
            "evil.html",
            &format!(
                "<form method=post action='http://127.0.0.1:{stats}/'><input name=s value=app1><input name=b value=app>\
                 <input name=action value=maint></form><script>document.forms[0].submit()</script>"
            ),
        );
        let config = place.file(
            "page.cfg",
            &format!(
                "global\n nbthread 2\n maxconn 200\ndefaults\n mode http\n timeout client 5s\n timeout server 5s\n timeout connect 1s\n\
                 frontend www\n bind 127.0.0.1:{www}\n http-request return status 500 if {{ path /boom }}\n default_backend app\n\
                 backend app\n server app1 127.0.0.1:{origin} check inter 1s\n server app2-with-a-rather-long-name.example.net 127.0.0.1:{origin}\n\
                 server dead 127.0.0.1:1 check inter 100ms fall 1\n\
                 listen stats\n bind 127.0.0.1:{stats}\n stats enable\n stats uri /\n stats admin if TRUE\n\
                 frontend origin\n bind 127.0.0.1:{origin}\n http-request return status 200 content-type text/plain string hello\n\
                 frontend evil\n bind 127.0.0.1:{evil}\n http-request return status 200 content-type text/html file {}\n",
                page.display()
            ),
        );
        let child = penstock().args(["-db", "-f"]).arg(config).spawn().unwrap();
        let patience = Instant::now() + Duration::from_secs(30);
        while TcpStream::connect(("127.0.0.1", stats)).is_err() {
            assert!(Instant::now() < patience, "the server never listened");
            std::thread::sleep(Duration::from_millis(20));
        }
        let ends = Arc::new(AtomicBool::new(false));
        let told = ends.clone();
        let clients = std::thread::spawn(move || {
            for number in 0_u64.. {
                if told.load(Ordering::Relaxed) {
                    return;
                }
                let path = if number.is_multiple_of(7) { "/boom" } else { "/" };
                let _ = ask(www, &format!("GET {path} HTTP/1.0\r\n\r\n"));
                // More and less, so that lines move.
                std::thread::sleep(Duration::from_millis(5 + number / 40 % 5 * 10));
            }
        });
        Served { child, stats, evil, ends, clients: Some(clients), _place: place }
    }

    fn url(&self, options: &str) -> String {
        format!("http://127.0.0.1:{}/{options}", self.stats)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = self.clients.take().map(JoinHandle::join);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ask(port: u16, request: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn post(port: u16, fields: &str, body: &str) -> String {
    let request =
        format!("POST / HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len());
    let answer = ask(port, &request).unwrap();
    let location = answer.lines().find_map(|line| line.strip_prefix("location: ")).unwrap_or_default();
    location.rsplit_once(";st=").map_or_else(|| answer.clone(), |(_, code)| code.to_owned())
}

/// Gives each cell of the proxies' tables the widest content that the page can have for it.
const WIDEST: &str = r#"(() => {
    const text = {
        "Max/Limit": "9\u202f999/<wbr>9\u202f999", Last: "23h59m", Dwntme: "23h59m", Wght: "256/<wbr>256", "Act/Bck": "9\u202f999/<wbr>9\u202f999",
        Status: "<span class='state maint'>MAINT (via a-backend-of-some-name/a-server-of-some-name)</span> <time>23h59m</time>",
        LastChk: "<abbr>* L7STS/503 in 10001 ms</abbr><br><abbr>agent L7TOUT in 10001 ms</abbr>", Thrtle: "100\u202f%",
    };
    return [...document.querySelectorAll("table.proxy")].every(table => {
        const heads = [...table.tHead.rows[1].cells].map(head => head.textContent);
        for (const row of table.tBodies[0].rows) {
            [...row.cells].slice(-heads.length).forEach((cell, at) => { cell.innerHTML = text[heads[at]] || "<abbr><span>88.8\u202fk</span></abbr>"; });
            row.querySelector("th.name a")?.append("-and-more".repeat(20));
        }
        return Object.keys(text).every(head => heads.includes(head));
    });
})()"#;

/// The requests' line; the right edge of it is the newest second.
const LINE: &str = "document.querySelector('figure path.line').getAttribute('d')";

#[test]
fn the_page_is_whole_and_moves_at_every_width_in_light_and_dark() {
    let served = Served::start("page");
    let place = Place::new("page-browser");
    let Some(mut browser) = Browser::start(&place, "the statistics page") else { return };
    let mut papers = Vec::new();
    let looks = [420, 1280, 1600, 1920].into_iter().flat_map(|width| [(width, false), (width, true)]);
    for (width, dark) in looks {
        let of = format!("{width} {dark}");
        browser.open(&served.url(""), width, dark);
        browser.until("document.getElementById('live').textContent === 'live'");
        // Graphs are there, and go on.
        assert_eq!(browser.value("document.querySelectorAll('figure').length"), 8, "{of}");
        browser.until(&format!("/M.*L/.test({LINE})"));
        let before = browser.value(LINE);
        browser.until(&format!("{LINE} !== {before}"));
        browser.until("document.getElementById('f0').cells[3].textContent > 0");
        let total = browser.value("document.getElementById('f0').cells[7].textContent");
        browser.until(&format!("document.getElementById('f0').cells[7].textContent !== {total}"));
        // The pointer asks for a value.
        let point = "(() => { const plot = document.querySelector('.plot'); const box = plot.getBoundingClientRect(); plot.dispatchEvent(new \
                     PointerEvent('pointermove', { clientX: box.right - 1, clientY: box.top + 5 })); const told = \
                     plot.querySelector('output'); return told.hidden ? 'hidden' : told.textContent; })()";
        let told = browser.value(point).to_string();
        assert!(told.contains(": ") && told.ends_with("/s\""), "{of}: {told}");
        // Nothing sticks out, and nothing is too small to read.
        assert_eq!(browser.value("document.documentElement.scrollWidth <= innerWidth"), true, "{of}");
        let small = "[...document.querySelectorAll('body *')].filter(e => e.offsetParent && [...e.childNodes].some(n => n.nodeType === 3 && \
                     n.data.trim()) && parseFloat(getComputedStyle(e).fontSize) < 11).map(e => e.outerHTML)";
        assert_eq!(browser.value(small), serde_json::json!([]), "{of}");
        assert_eq!(
            browser.value(
                "[...document.querySelectorAll('.legend .state')].filter(pill => !pill.textContent.trim()).length"
            ),
            0,
            "{of}"
        );
        // What is down can be seen without scrolling to the side, and its name with it.
        browser.until("[...document.querySelectorAll('tr.down')].length === 1");
        let seen = "(() => { const row = document.querySelector('tr.down'); row.scrollIntoView(); const seen = e => { const b = \
                    e.getBoundingClientRect(); return b.width > 0 && b.left >= 0 && b.right <= innerWidth; }; return seen(row.querySelector('a')) \
                    && [...row.querySelectorAll('.state')].some(e => e.textContent === 'DOWN' && seen(e)); })()";
        assert_eq!(browser.value(seen), true, "{of}: the state is off the screen");
        // The last column can be reached, and the name stays beside it.
        let last = "[...document.querySelectorAll('table.proxy')].every(table => { const box = table.parentElement; box.scrollLeft = 1e6; const \
                    cell = [...table.tHead.rows[1].cells].pop().getBoundingClientRect(); const name = \
                    table.tBodies[0].querySelector('th.name').getBoundingClientRect(); return cell.right <= innerWidth && cell.left >= name.right - 1 \
                    && name.left >= 0; })";
        assert_eq!(browser.value(last), true, "{of}: the last column cannot be reached");
        let shade = if dark { "dark" } else { "light" };
        browser.picture(&format!("page-{width}-{shade}"));
        // From 1280 pixels on, nothing needs to be scrolled to, whatever is in the cells.
        if width >= 1280 {
            let hidden = "[...document.querySelectorAll('.scroll')].map(box => box.scrollWidth - box.clientWidth)";
            assert_eq!(browser.value(hidden), serde_json::json!([0, 0, 0, 0, 0]), "{of}");
            browser.value("document.getElementById('live').click()");
            assert_eq!(browser.value(WIDEST), true);
            assert_eq!(browser.value(hidden), serde_json::json!([0, 0, 0, 0, 0]), "{of}, with the widest cells");
            browser.picture(&format!("page-{width}-{shade}-widest"));
        }
        papers.push(browser.value("getComputedStyle(document.body).backgroundColor").to_string());
    }
    assert!(papers[0] != papers[1] && papers[0] == papers[2], "light and dark: {papers:?}");
    // A name leads to its graphs, which move as well; so do those of the process over an hour.
    browser.open(&served.url(""), 1280, false);
    browser.value("document.querySelector('tr:not(.side) th.name a').click()");
    browser.until("document.querySelector('#gh')?.firstChild.data === 'app / app1'");
    browser.until(&format!("/M.*L/.test({LINE})"));
    assert_eq!(browser.value("document.querySelectorAll('figure').length"), 4);
    browser.open(&served.url(";hour"), 1280, false);
    browser.until("document.querySelector('.ranges [aria-current]').textContent === 'hour'");
    assert_eq!(browser.complaints, Vec::<String>::new());
}

#[test]
fn a_form_of_the_page_is_obeyed_and_one_of_another_site_is_not() {
    let served = Served::start("forms");
    let place = Place::new("forms-browser");
    let Some(mut browser) = Browser::start(&place, "the forms of the statistics page") else { return };
    browser.open(&format!("http://127.0.0.1:{}/", served.evil), 1280, false);
    browser.until("location.search + location.pathname === '/;st=FORM' && !!document.querySelector('.done.bad')");
    browser.open(&served.url(""), 1280, false);
    browser.until("document.getElementById('live').textContent === 'live'");
    browser.value(
        "(() => { const form = document.querySelector('form[method=post]'); form.querySelector('[value=app1]').checked = true; \
         form.elements.action.value = 'maint'; form.querySelector('button').click(); })()",
    );
    browser.until("location.pathname === '/;st=DONE' && document.querySelector('.done')?.textContent === 'Done.'");
    browser.until("document.querySelectorAll('tr.maint').length === 1");
    // Somebody else makes it ready: the page sees that by itself.
    assert_eq!(post(served.stats, "", "s=app1&b=app&action=ready"), "DONE");
    browser.until("document.querySelectorAll('tr.maint').length === 0");
    assert_eq!(browser.complaints, Vec::<String>::new());
}

#[test]
fn without_scripts_the_page_has_its_graphs_and_programs_are_obeyed_as_before() {
    let served = Served::start("plain");
    let get = |options: &str| ask(served.stats, &format!("GET /{options} HTTP/1.0\r\n\r\n")).unwrap();
    let patience = Instant::now() + Duration::from_secs(60);
    let page = loop {
        let page = get("");
        let line = page
            .split("<path class=\"line l0\" d=\"")
            .nth(1)
            .and_then(|rest| rest.split('"').next())
            .unwrap_or_default();
        if line.contains('L') {
            break page;
        }
        assert!(Instant::now() < patience, "no line was ever drawn: {page}");
        std::thread::sleep(Duration::from_millis(100));
    };
    assert!(
        !page.contains("NaN") && !page.contains("src=") && !page.contains("http://") && !page.contains("https://"),
        "{page}"
    );
    assert!(
        get(";week;of=app%2Fapp1").contains("app / app1")
            && get(";of=app%2Fnobody").contains("no such proxy or server")
    );
    let token =
        page.split("name=\"token\" value=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap().to_owned();
    let form = "s=app1&b=app&action=ready";
    let here = format!("Origin: http://127.0.0.1:{}\r\n", served.stats);
    for (fields, body, code) in [
        ("", form.to_owned(), "DONE"),
        (here.as_str(), form.to_owned(), "DONE"),
        ("Origin: http://evil.example\r\n", form.to_owned(), "FORM"),
        ("Sec-Fetch-Site: cross-site\r\n", form.to_owned(), "FORM"),
        ("Referer: http://evil.example/127.0.0.1\r\n", form.to_owned(), "FORM"),
        ("", format!("{form}&token=0123"), "FORM"),
        (here.as_str(), format!("{form}&token={token}"), "DONE"),
    ] {
        assert_eq!(post(served.stats, fields, &body), code, "{fields}{body}");
    }
}

#[test]
fn a_drain_does_not_wait_for_those_who_look_on() {
    let mut served = Served::start("drain");
    let mut stream = TcpStream::connect(("127.0.0.1", served.stats)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(b"GET /;stream HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let mut heard = Vec::new();
    let mut chunk = [0; 16384];
    while heard.windows(6).filter(|window| *window == b"data: ").count() < 3 {
        let count = stream.read(&mut chunk).unwrap();
        assert!(count > 0, "it ended: {}", String::from_utf8_lossy(&heard));
        heard.extend_from_slice(&chunk[..count]);
    }
    let head = String::from_utf8_lossy(&heard).to_lowercase();
    assert!(head.contains("content-type: text/event-stream") && head.contains("transfer-encoding: chunked"), "{head}");
    signal_to(served.child.id(), USR1);
    stream.read_to_end(&mut heard).unwrap();
    assert!(heard.ends_with(b"0\r\n\r\n"), "the stream is complete");
    drop(stream);
    assert!(served.child.wait().unwrap().success());
}

/// What a cell says, without the text of its ages.
fn without_ages(html: &str) -> String {
    html.split("<time ").map(|part| part.split_once("</time>").map_or(part, |(_, rest)| rest)).collect()
}

#[test]
fn what_only_ages_is_counted_by_the_page_and_not_sent_again() {
    let served = Served::start("ages");
    let mut stream = TcpStream::connect(("127.0.0.1", served.stats)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(b"GET /;stream HTTP/1.0\r\n\r\n").unwrap();
    let (mut bytes, mut buffer) = (Vec::new(), [0; 65536]);
    while bytes.windows(2).filter(|two| two == b"\n\n").count() < 7 {
        let read = stream.read(&mut buffer).unwrap();
        assert!(read > 0, "the stream ended");
        bytes.extend_from_slice(&buffer[..read]);
    }
    let text = String::from_utf8(bytes).unwrap();
    let events = text.split("data: ").skip(1).filter_map(|event| serde_json::from_str(event.trim()).ok());
    let mut sent = std::collections::HashMap::new();
    let mut ages = 0;
    for event in events {
        let event: serde_json::Value = event;
        assert!(event["now"].is_u64());
        for cell in event["cells"].as_array().into_iter().flatten() {
            let (place, html) = ((cell[0].clone(), cell[1].clone()), cell[2].as_str().unwrap().to_owned());
            let before = sent.insert(place, html.clone());
            ages += usize::from(html.contains("<time "));
            let began =
                |html: &str| html.split("data-at=\"").nth(1).map(|rest| rest.split('"').next().unwrap().to_owned());
            if let Some(before) = before {
                let is_same = without_ages(&before) == without_ages(&html) && began(&before) == began(&html);
                assert!(!is_same, "sent again: {before} and {html}");
            }
        }
    }
    assert!(ages > 0);
    let place = Place::new("ages-browser");
    let Some(mut browser) = Browser::start(&place, "the statistics page") else { return };
    browser.open(&served.url(""), 1280, false);
    browser.until("document.getElementById('live').textContent === 'live'");
    for place in [
        "[...document.querySelectorAll('tr')].find(r => r.textContent.includes('dead')).querySelector('.state + time')",
        "document.querySelector('.facts time')",
    ] {
        let told = browser.value(&format!("{place}.textContent")).to_string();
        browser.until(&format!("{place}.textContent !== {told}"));
        browser.until(&format!("/^\\d+s$|^\\d+m\\d+s$/.test({place}.textContent)"));
    }
}
