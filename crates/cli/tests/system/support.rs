//! What a server tells those who help has everything but secrets.

use std::fs;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use data_encoding::{BASE64_NOPAD, HEXLOWER};
use serde_json::{Value, json};

use crate::harness::{AUTHORITY, Client, Scratch, Server, exchange, is_installed, port, run_ok, skip};
use crate::manage::{ctl, ctl_ok};

const TIMEOUT: Duration = Duration::from_secs(60);

/// What a bundle has.
const PARTS: [&str; 16] = [
    "absent",
    "audit",
    "clients",
    "configuration",
    "dvds",
    "events",
    "jobs",
    "links",
    "made",
    "metrics",
    "pools",
    "schema",
    "sessions",
    "snapshots",
    "statistics",
    "status",
];

/// What keeps it from others, wherever it stands in what is kept.
fn kept_secrets(value: &Value, secrets: &mut Vec<String>) {
    const KEYS: [&str; 5] = ["psk", "secret", "password", "hash", "digest"];
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                match value {
                    Value::String(text) if KEYS.iter().any(|part| key.contains(part)) => secrets.push(text.clone()),
                    value => kept_secrets(value, secrets),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| kept_secrets(value, secrets)),
        _ => {}
    }
}

#[test]
fn a_support_bundle_has_everything_but_secrets() {
    let test = "a_support_bundle_has_everything_but_secrets";
    if !is_installed("openssl") {
        return skip(test, "openssl is not installed");
    }
    let scratch = Scratch::new();
    let (port, iscsi, http) = (port(), port(), port());
    let [password, chap, own] = ["server-7f3c-password", "chap-9d1e-secret", "own-5b2a-password"];
    let files = [("password", password), ("chap", chap), ("own", own)];
    let [password_file, chap_file, own_file] = files.map(|(name, text)| scratch.secret(name, &format!("{text}\n")));
    let (key, certificate) = (scratch.text("key.pem"), scratch.text("certificate.pem"));
    let mut make = Command::new("openssl");
    make.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]);
    make.args(["-keyout", &key, "-out", &certificate]);
    run_ok(make, TIMEOUT);
    let text = format!(
        "password-file = {password_file:?}\nhttp = [\"127.0.0.1:{http}\", \"unix:{}\"]\n\
         http-certificate = {certificate:?}\nhttp-key = {key:?}\n\n\
         [[volume]]\nname = \"disk\"\nstore = \"ram:8M\"\n\n\
         [[target]]\nname = \"{AUTHORITY}:disk\"\nlun.0 = \"disk\"\n\
         chap = [{{ user = \"host\", secret-file = {chap_file:?} }}]\n",
        scratch.text("http.sock"),
    );
    fs::write(scratch.path("sanwire.toml"), text).expect("a configuration");
    let options = ["--config", &scratch.text("sanwire.toml"), "--control", &scratch.text("control")].map(str::to_owned);
    let wires = [format!("hs-ip:127.0.0.1:{port}"), format!("iscsi:127.0.0.1:{iscsi}")];
    let mut server = Server::start_on(&scratch, &wires.each_ref().map(String::as_str), &[], &options);
    let socket = scratch.path("control");
    let ask = |method: &str, path: &str, body: &str| {
        let stream = UnixStream::connect(scratch.path("http.sock")).expect("the socket");
        exchange(stream, method, &format!("/api/v1{path}"), "", body)
    };

    let alice = Client::new(&scratch, "alice");
    ctl_ok(&socket, &["add-client", &alice.id(), "--name", "alice", "--manage", "--own-password-file", &own_file]);
    let token = ask("POST", "/tokens", r#"{"name":"csi","role":"administrator"}"#).json()["token"].clone();
    let token = token.as_str().expect("a token").to_owned();
    let link = ctl_ok(&socket, &["web-login"]);
    let code = link.trim_end().split_once("#code=").expect("a link").1.to_owned();
    let user = json!({ "name": "ann", "role": "viewer", "password": "correct horse battery" });
    assert_eq!(ask("POST", "/users", &user.to_string()).0, 201);
    let url = format!("hs+ip://127.0.0.1:{port}");

    let bundles = [
        ctl_ok(&socket, &["support-bundle"]),
        alice.run(&["manage", &url, "support-bundle", "--password-file", &own_file]).stdout,
        ask("GET", "/support-bundle", "").2,
    ];
    let mut secrets = vec![password.to_owned(), chap.into(), own.into(), token, code, "correct horse battery".into()];
    let pem = fs::read_to_string(&key).expect("the key");
    secrets.extend(pem.lines().filter(|line| !line.starts_with("---")).take(3).map(str::to_owned));
    let state = |name: &str| fs::read(scratch.path(&format!("server-state/sanwire/{name}"))).expect(name);
    for name in ["clients-box.json", "http-box.json"] {
        let before = secrets.len();
        // Some files say in a line of their own what they are.
        let values = serde_json::Deserializer::from_slice(&state(name)).into_iter::<Value>().collect::<Vec<_>>();
        values.iter().flatten().for_each(|value| kept_secrets(value, &mut secrets));
        assert!(secrets.len() > before, "{name} has none");
    }
    let own_key = state("server.key");
    for (number, text) in bundles.iter().enumerate() {
        let bundle: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{number}: {error}: {text}"));
        let parts: Vec<&str> = bundle.as_object().expect("an object").keys().map(String::as_str).collect();
        let mut wanted = PARTS.to_vec();
        wanted.sort_unstable();
        let mut there = parts.clone();
        there.sort_unstable();
        assert_eq!((there, &bundle["absent"]), (wanted, &json!({})), "{number}");
        assert_eq!(bundle["status"]["volumes"][0]["name"], "disk", "{number}");
        assert!(bundle["status"]["host"]["kernel"].is_string(), "{number}");
        assert!(bundle["audit"]["lines"].to_string().contains("add-client"), "{number}");
        assert_eq!(bundle["clients"][0]["has_password"], true, "{number}");
        for secret in &secrets {
            let bytes = secret.as_bytes();
            let forms = [secret.clone(), BASE64_NOPAD.encode(bytes), HEXLOWER.encode(bytes)];
            let found = forms.iter().find(|form| text.contains(&***form));
            assert!(found.is_none(), "bundle {number} has {found:?}");
        }
        for form in [BASE64_NOPAD.encode(&own_key), HEXLOWER.encode(&own_key)] {
            assert!(!text.contains(&form), "bundle {number} has the server's key");
        }
    }
    // A question with a condition was meant to be a change.
    let refused = ctl(&socket, &["support-bundle", "--dry-run"]);
    assert!(refused.code == Some(2) && refused.stderr.contains("what changes something"), "{}", refused.stderr);
    assert!(server.stop().success());
}
