//! A real browser, told what to do over its pipe for debuggers: messages of JSON that end with a zero byte.

use super::{
    Place,
    study::{is_installed, skip},
};
use serde_json::{Value, json};
use std::{
    fs::File,
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// A browser with one tab.
pub struct Browser {
    child: Child,
    told: File,
    heard: BufReader<File>,
    session: Option<String>,
    number: u64,
    /// What the page complained of: messages on the console, exceptions, violations of its policy.
    pub complaints: Vec<String>,
}

impl Browser {
    /// Starts a browser, or reports that there is none.
    pub fn start(place: &Place, what: &str) -> Option<Browser> {
        Browser::start_with(place, what, &[])
    }

    /// The same with more arguments.
    pub fn start_with(place: &Place, what: &str, more: &[&str]) -> Option<Browser> {
        let Some(program) =
            ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| is_installed(name))
        else {
            skip(&format!("{what} in a browser: none is installed (chromium)"));
            return None;
        };
        let (to, from) = (place.0.join("to-browser"), place.0.join("from-browser"));
        assert!(Command::new("mkfifo").args([&to, &from]).status().unwrap().success());
        // The pipes are descriptors 3 and 4, which only a shell can give them here.
        let child = Command::new("sh")
            .arg("-c")
            .arg(
                "exec 3<\"$1\" 4>\"$2\"; shift 2; exec \"$0\" --headless=new --no-sandbox --disable-gpu --remote-debugging-pipe \"$@\" about:blank",
            )
            .arg(program)
            .args([&to, &from])
            .arg(format!("--user-data-dir={}", place.0.join("profile").display()))
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let told = File::options().write(true).open(&to).unwrap();
        let heard = BufReader::new(File::open(&from).unwrap());
        let mut browser = Browser { child, told, heard, session: None, number: 0, complaints: Vec::new() };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attached =
            browser.call("Target.attachToTarget", json!({ "targetId": target["targetId"], "flatten": true }));
        browser.session = Some(attached["sessionId"].as_str().expect("a session").to_owned());
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Tells it something, and returns its answer.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.ask(method, params).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    fn ask(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        self.number += 1;
        let mut message = json!({ "id": self.number, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        self.told.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let mut answer = Vec::new();
            assert!(self.heard.read_until(0, &mut answer).unwrap() > 0, "the browser has ended");
            answer.pop();
            let mut answer: Value = serde_json::from_slice(&answer).unwrap();
            if answer["id"] == self.number {
                return match answer.get("error") {
                    Some(error) => Err(error.clone()),
                    None => Ok(answer["result"].take()),
                };
            }
            if matches!(
                answer["method"].as_str(),
                Some("Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded")
            ) {
                self.complaints.push(answer["params"].to_string());
            }
        }
    }

    /// The value of an expression on the page.
    pub fn value(&mut self, expression: &str) -> Value {
        self.value_unless_left(expression).unwrap_or_else(|| panic!("{expression}: the page was left meanwhile"))
    }

    /// The value of an expression; `None` if the page was just replaced by another.
    fn value_unless_left(&mut self, expression: &str) -> Option<Value> {
        match self.ask("Runtime.evaluate", json!({ "expression": expression, "returnByValue": true })) {
            Ok(mut result) => {
                assert!(result.get("exceptionDetails").is_none(), "{expression}: {result}");
                Some(result["result"]["value"].take())
            }
            Err(error) if error["message"].as_str().is_some_and(|message| message.contains("navigated")) => None,
            Err(error) => panic!("{expression}: {error}"),
        }
    }

    /// Waits until an expression is true, as it will be soon.
    pub fn until(&mut self, expression: &str) {
        let patience = Instant::now() + Duration::from_secs(60);
        while self.value_unless_left(expression) != Some(Value::Bool(true)) {
            assert!(Instant::now() < patience, "{expression} never came true; complaints: {:?}", self.complaints);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Opens a page in a window of this width.
    pub fn open(&mut self, url: &str, width: u32, dark: bool) {
        let mobile = width < 600;
        self.call(
            "Emulation.setDeviceMetricsOverride",
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": mobile }),
        );
        let scheme = if dark { "dark" } else { "light" };
        self.call(
            "Emulation.setEmulatedMedia",
            json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] }),
        );
        self.call("Page.navigate", json!({ "url": url }));
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'");
    }

    /// Saves the page as a picture in the directory that `PENSTOCK_SCREENSHOTS` names, for a person to look at.
    pub fn picture(&mut self, name: &str) {
        let Some(directory) = std::env::var_os("PENSTOCK_SCREENSHOTS") else { return };
        let shot = self.call("Page.captureScreenshot", json!({ "format": "png", "captureBeyondViewport": true }));
        let picture = File::create(std::path::Path::new(&directory).join(format!("{name}.png"))).unwrap();
        let mut decoder = Command::new("base64").arg("-d").stdin(Stdio::piped()).stdout(picture).spawn().unwrap();
        decoder.stdin.take().unwrap().write_all(shot["data"].as_str().unwrap().as_bytes()).unwrap();
        assert!(decoder.wait().unwrap().success());
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
