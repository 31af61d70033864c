//! The page to which one-time links lead, with its own script run by node in the place of a browser.

use std::ffi::OsStr;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::exchange;
use super::tools::path_to_node;
use crate::harness::{Scratch, Server, port, run_ok, skip};
use crate::manage::ctl_ok;

const TIMEOUT: Duration = Duration::from_secs(60);

/// Opens the page of a link, runs its script, fills in the form and sends it. What the page is of which the script knows is all that a browser
/// has here: elements by their ids, the place, the history.
const BROWSER: &str = r#"
const [link, name, password] = process.argv.slice(-3);
const url = new URL(link), send = globalThis.fetch, cookies = [];
const page = await (await send(new URL('/', url))).text();
const elements = {};
for (const [tag, id] of page.matchAll(/<[^>]* id="([^"]+)"[^>]*>/g)) {
  const listeners = {};
  const addEventListener = (kind, listener) => { listeners[kind] = listener; };
  elements[id] = { value: '', textContent: '', hidden: / hidden/.test(tag), listeners, addEventListener };
}
let place = url.href;
globalThis.document = { getElementById: (id) => elements[id] ?? null };
globalThis.location = url;
globalThis.history = { replaceState: (state, title, to) => { place = new URL(to, url).href; } };
globalThis.fetch = async (to, options) => {
  const answer = await send(new URL(to, url), options);
  cookies.push(...answer.headers.getSetCookie());
  return answer;
};
const script = await (await send(new URL(/<script src="([^"]+)"/.exec(page)[1], url))).text();
(0, eval)(script);
const begins = !elements.form.hidden;
elements.name.value = name;
elements.password.value = password;
if (begins) await elements.form.listeners.submit({ preventDefault() {} });
console.log(JSON.stringify({ told: elements.told.textContent, begins, open: !elements.form.hidden, place, cookies }));
"#;

fn browse(path: &OsStr, link: &str, name: &str, password: &str) -> Value {
    let mut node = Command::new("node");
    node.env("PATH", path).args(["--input-type=module", "--eval", BROWSER, "--", link, name, password]);
    serde_json::from_str(&run_ok(node, TIMEOUT)).expect("what the page has become")
}

#[test]
fn a_one_time_link_opens_a_form_that_logs_the_browser_in() {
    let test = "a_one_time_link_opens_a_form_that_logs_the_browser_in";
    let Some(path) = path_to_node() else { return skip(test, "node cannot be had from PyPI") };
    let browse = |link: &str, name: &str, password: &str| browse(&path, link, name, password);
    let scratch = Scratch::new();
    let (wire, http, control) = (format!("hs-ip:127.0.0.1:{}", port()), port(), scratch.text("ctl.sock"));
    let options = ["--http", &format!("127.0.0.1:{http}"), "--control", &control].map(str::to_owned);
    let mut server = Server::start_on(&scratch, &[&wire], &["disk0=ram:8M"], &options);
    let link = |arguments: &[&str]| {
        let link = ctl_ok(&scratch.path("ctl.sock"), &[&["web-login"], arguments].concat());
        link.trim_end().to_owned()
    };
    let url = format!("http://127.0.0.1:{http}/");

    let bare = browse(&url, "root", "correct horse battery");
    assert_eq!((&bare["begins"], &bare["cookies"]), (&false.into(), &serde_json::json!([])), "{bare}");
    let refused = browse(&format!("{url}#code=0"), "root", "correct horse battery");
    assert!(refused["told"].as_str().expect("a text").contains("(login-refused)"), "{refused}");
    let first = link(&[]);
    let done = browse(&first, "root", "correct horse battery");
    assert!(done["told"].as_str().expect("a text").contains("as administrator"), "{done}");
    assert_eq!(
        (&done["open"], &done["place"]),
        (&false.into(), &Value::from(&*url)),
        "the code is out of sight: {done}"
    );
    let cookie = done["cookies"][0].as_str().and_then(|cookie| cookie.split(';').next()).expect("a cookie");
    let ask = |cookie: &str| {
        let stream = std::net::TcpStream::connect(("127.0.0.1", http)).expect("the port");
        exchange(stream, "GET", "/api/v1/session", &format!("Cookie: {cookie}\r\n"), "")
    };
    assert_eq!(ask(cookie).json()["name"], "root");
    let again = browse(&first, "root", "another password!");
    assert!(again["told"].as_str().expect("a text").contains("(login-refused)"), "{again}");
    let other = browse(&link(&["root"]), "root", "another password!");
    assert!(other["told"].as_str().expect("a text").contains("Done: root"), "{other}");
    assert_eq!(ask(cookie).0, 401, "the sessions of before have ended");
    assert!(server.stop().success());
}
