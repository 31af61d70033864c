//! The HTTP API before others' eyes: tools that know it by its own description alone, and curl over TLS.

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;

use super::tools::{of_npm, of_python};
use crate::harness::{Scratch, Server, exchange, is_installed, port, run, run_ok, skip, wait_until};

const TIMEOUT: Duration = Duration::from_secs(60);

/// Passwords are made slow to guess, and a program that is not optimised, on a busy host, takes seconds for each.
const JUDGE_TIMEOUT: Duration = Duration::from_secs(600);

const JUDGES: [&str; 2] = ["schemathesis==4.32.5", "openapi-spec-validator==0.9.0"];

const SPECTRAL: &str = "@stoplight/spectral-cli@6.16.3";

fn document() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json")
}

#[test]
fn the_description_is_valid_openapi() {
    let test = "the_description_is_valid_openapi";
    let Some(bin) = of_python(&JUDGES) else { return skip(test, "openapi-spec-validator cannot be had from PyPI") };
    let mut validator = Command::new(bin.join("openapi-spec-validator"));
    validator.arg(document());
    run_ok(validator, TIMEOUT);
}

#[test]
fn spectral_finds_no_error_in_the_description() {
    let test = "spectral_finds_no_error_in_the_description";
    let Some((bin, path)) = of_npm(SPECTRAL) else { return skip(test, "spectral cannot be had from npm") };
    let scratch = Scratch::new();
    fs::write(scratch.path("rules.yaml"), "extends: [\"spectral:oas\"]\n").expect("the rules");
    let mut lint = Command::new(bin.join("spectral"));
    lint.env("PATH", path);
    lint.args(["lint", "--fail-severity=error", "--ruleset"]).arg(scratch.path("rules.yaml")).arg(document());
    run_ok(lint, TIMEOUT);
}

/// What may be the answer to a request that is as the description says: it may name what is not there, be refused for what is there already,
/// or for what a text means. None is a request that cannot be understood (400), but of the four operations whose rules no schema says.
const EXPECTED: &str = r#"
hooks = "hooks.py"

[checks.positive_data_acceptance]
expected-statuses = ["2xx", "401", "403", "404", "409", "412", "413", "422", "429", "503", "507"]

# `snapshots=true` needs `content=delete`.
[[operations]]
include-name = "DELETE /api/v1/volumes/{volume}"
checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "404", "409", "412", "503"]

# The one property that is given may not be null.
[[operations]]
include-name = "PATCH /api/v1/volumes/{volume}"
checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "404", "409", "412", "422", "503", "507"]

# One of `role` and `password` is not null.
[[operations]]
include-name = "PATCH /api/v1/users/{user}"
checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "403", "404", "409", "422", "429", "503", "507"]

# One of `store` and `source` is not null.
[[operations]]
include-name = "POST /api/v1/volumes"
checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "404", "409", "412", "422", "503", "507"]
"#;

/// A stream of events ends with what has happened: nobody waits for what may never happen.
const HOOKS: &str = r#"
import schemathesis

@schemathesis.hook
def before_call(context, case, kwargs):
    if case.operation.path == "/api/v1/events" and (case.query or {}).get("follow") in (None, True, "true"):
        case.query = {**(case.query or {}), "follow": "false"}
"#;

/// The seed, how many examples there are of each operation, and how long that may take: in the long form more, and others each time.
fn judging() -> (u64, &'static str, Duration) {
    if env::var_os("SANWIRE_TIMES").is_none() {
        return (1, "4", JUDGE_TIMEOUT);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time");
    (now.as_secs(), "40", 10 * JUDGE_TIMEOUT)
}

#[test]
fn schemathesis_finds_nothing_in_what_the_description_promises() {
    let test = "schemathesis_finds_nothing_in_what_the_description_promises";
    if !is_installed("setpriv") {
        return skip(test, "setpriv is not installed");
    }
    let Some(bin) = of_python(&JUDGES) else { return skip(test, "schemathesis cannot be had from PyPI") };
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.path("pool")).expect("a directory");
    fs::set_permissions(scratch.path("pool"), Permissions::from_mode(0o777)).expect("a directory for everybody");
    fs::write(scratch.path("schemathesis.toml"), EXPECTED).expect("its configuration");
    fs::write(scratch.path("hooks.py"), HOOKS).expect("its hooks");
    let (wire, url) = (format!("hs-ip:127.0.0.1:{}", port()), format!("127.0.0.1:{}", port()));
    let (unix, pool) = (format!("unix:{}", scratch.text("http.sock")), format!("fast={}", scratch.text("pool")));
    let options = ["--http", &url, "--http", &unix, "--pool", &pool].map(str::to_owned);
    // An administrator names paths of this host, and here makes them up.
    let mut server = Server::start_as_nobody(&scratch, &[&wire], &["disk0=ram:8M", "disk1=pool:,size=4M"], &options);
    let stream = UnixStream::connect(scratch.path("http.sock")).expect("the socket");
    let made = exchange(stream, "POST", "/api/v1/tokens", "", r#"{"name":"judge","role":"administrator"}"#).json();
    let token = made["token"].as_str().expect("a token");
    let mut judge = Command::new(bin.join("st"));
    judge.current_dir(scratch.directory()).arg("--config-file").arg(scratch.path("schemathesis.toml"));
    let (seed, examples, timeout) = judging();
    let count = ["--seed", &seed.to_string(), "--max-examples", examples];
    judge.args(["run", &format!("http://{url}/openapi.json"), "--no-color"]).args(count);
    judge.args(["--request-timeout", "90", "-H", &format!("Authorization: Bearer {token}")]);
    run_ok(judge, timeout);
    assert!(server.stop().success());
}

#[test]
fn curl_speaks_http_2_over_tls_and_knows_the_server_by_its_certificate() {
    let test = "curl_speaks_http_2_over_tls_and_knows_the_server_by_its_certificate";
    if !is_installed("curl") || !is_installed("openssl") {
        return skip(test, "curl or openssl is not installed");
    }
    let scratch = Scratch::new();
    let (key, certificate) = (scratch.text("key.pem"), scratch.text("certificate.pem"));
    let make = || {
        let mut make = Command::new("openssl");
        make.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]);
        make.args(["-addext", "subjectAltName=DNS:localhost", "-keyout", &key, "-out", &certificate]);
        run_ok(make, TIMEOUT);
    };
    make();
    let (wire, http) = (format!("hs-ip:127.0.0.1:{}", port()), port());
    let configuration = scratch.path("sanwire.toml");
    let text = format!(
        "http = [\"127.0.0.1:{http}\"]\nhttp-certificate = {certificate:?}\nhttp-key = {key:?}\n\n\
         [[volume]]\nname = \"disk0\"\nstore = \"ram:8M\"\n"
    );
    fs::write(&configuration, text).expect("a configuration");
    let options = ["--config", &configuration.display().to_string(), "--control", &scratch.text("control")];
    let options = options.map(str::to_owned);
    let server = Server::start_on(&scratch, &[&wire], &[], &options);
    let curl = |arguments: &[&str]| {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--max-time", "20"]).args(arguments);
        run(curl, TIMEOUT)
    };
    let url = format!("https://localhost:{http}/healthz");
    let told = curl(&["--cacert", &certificate, "--write-out", "%{http_version} %{http_code}", &url]);
    assert_eq!(told.stdout, "ok\n2 200", "{}", told.stderr);
    let old = curl(&["--cacert", &certificate, "--http1.1", "--write-out", "%{http_version} %{http_code}", &url]);
    assert_eq!(old.stdout, "ok\n1.1 200", "{}", old.stderr);
    // Nobody is let in who does not know the certificate, or speaks in the clear.
    assert_eq!(curl(&[&url]).code, Some(60));
    assert_ne!(curl(&[&url.replace("https", "http")]).code, Some(0));
    let stranger = curl(&["--cacert", &certificate, &url.replace("healthz", "api/v1/volumes")]);
    assert!(stranger.stdout.contains("unauthenticated"), "{}", stranger.stdout);
    // Another certificate comes in its place, and what is none does not.
    make();
    server.signal(Signal::HUP);
    wait_until("the certificate is another one", TIMEOUT, || curl(&["--cacert", &certificate, &url]).code == Some(0));
    let kept = scratch.text("kept.pem");
    fs::copy(&certificate, &kept).expect("the certificate");
    fs::write(&certificate, "none").expect("the certificate");
    let mut reload = Command::new(env!("CARGO_BIN_EXE_sanwire"));
    reload.args(["ctl", "reload", "--socket", &scratch.text("control")]);
    let refused = run(reload, TIMEOUT);
    assert!(refused.stderr.contains("the certificate of the HTTP API"), "{}", refused.stderr);
    assert_eq!(curl(&["--cacert", &kept, &url]).code, Some(0));
}
