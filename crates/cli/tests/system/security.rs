//! Who may come in, and whom a client takes for its server.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use crate::harness::{Client, Ran, Scratch, Server, port, wait_until};

const TIMEOUT: Duration = Duration::from_secs(90);

#[track_caller]
fn expect_done(ran: &Ran, part: &str) {
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.contains(part), "{}", ran.stdout);
}

#[track_caller]
fn expect_refused(ran: &Ran, code: i32, part: &str) {
    assert_eq!(ran.code, Some(code), "{}", ran.stdout);
    assert!(ran.stderr.contains(part), "{}", ran.stderr);
}

fn is_back(client: Client<'_>, url: &str) {
    wait_until("the server is back", TIMEOUT, || client.run(&["ls", url]).code == Some(0));
}

/// Each of these has given one wrong password, and the audit log says so.
#[track_caller]
fn is_audited(scratch: &Scratch, wrong: [&Client<'_>; 3]) {
    let audit = || fs::read_to_string(scratch.audit_log()).unwrap_or_default();
    wait_until("every wrong password is written down", TIMEOUT, || audit().lines().count() >= wrong.len());
    for client in wrong {
        let by = format!("\"by\":{{\"client\":\"{}\",\"address\":\"127.0.0.1:", client.id());
        let of_client: Vec<String> = audit().lines().filter(|line| line.contains(&by)).map(str::to_owned).collect();
        let [line] = &of_client[..] else { panic!("one line of each: {}", audit()) };
        assert!(line.contains("\"refused\"") && line.contains("password") && line.contains("\"count\":1"), "{line}");
    }
}

#[test]
fn a_pinned_server_is_refused_when_it_has_another_key() {
    let scratch = Scratch::new();
    let [port, visa] = [(); 2].map(|()| port());
    let [url, visa_url] = [format!("hs+ip://127.0.0.1:{port}"), format!("visa://127.0.0.1:{visa}")];
    let wires = [format!("hs-ip:127.0.0.1:{port}"), format!("visa:127.0.0.1:{visa}")];
    let wires = wires.each_ref().map(String::as_str);
    let mut server = Server::start_on(&scratch, &wires, &["disk0=ram:1M"], &[]);
    let (alice, bob) = (Client::new(&scratch, "alice"), Client::new(&scratch, "bob"));
    let pinned = alice.run(&["key", "pin", &url]);
    expect_done(&alice.run(&["key", "pin", &visa_url]), "is taken with this key only, from now on");
    expect_done(&pinned, "is taken with this key only, from now on");
    let shown = alice.run(&["key", "show", &scratch.text("server-state/sanwire/server.key")]);
    let key = shown.stdout.lines().find_map(|line| line.strip_prefix("public key")).expect("a key").trim();
    expect_done(&pinned, &format!(":\n{key}\n"));
    expect_done(&alice.run(&["key", "show"]), &format!("client id   {}\n", alice.id()));
    expect_done(&alice.run(&["ls", &url]), "disk0");
    assert!(server.stop().success());
    server.restart();
    is_back(bob, &url);
    expect_done(&alice.run(&["ls", &url]), "disk0");
    assert!(server.stop().success());

    fs::remove_file(scratch.path("server-state").join("sanwire/server.key")).expect("the server's key");
    server.restart();
    is_back(bob, &url);
    let new = alice.run(&["key", "show", &scratch.text("server-state/sanwire/server.key")]);
    let new = new.stdout.lines().find_map(|line| line.strip_prefix("public key")).expect("a key").trim().to_owned();
    let changed = format!("SERVER KEY CHANGED: pinned {key}, received {new}.");
    for url in [&url, &visa_url] {
        let told = alice.run(&["ls", url]);
        expect_refused(&told, 1, &changed);
        expect_refused(&told, 1, &format!("`sanwire key pin {url} --key KEY --replace`"));
    }
    for unconfirmed in
        [&["key", "pin", &url][..], &["key", "pin", &url, "--replace"], &["key", "pin", &url, "--key", &new]]
    {
        expect_refused(&alice.run(unconfirmed), 2, &format!("pinned:   {key}\nreceived: {new}\nnothing was changed"));
        expect_refused(&alice.run(&["ls", &url]), 1, &changed);
    }
    expect_refused(&alice.run(&["key", "pin", &url, "--key", "e078"]), 2, "a key has 64 hexadecimal digits");
    expect_done(&alice.run(&["key", "pin", &url, "--key", &new, "--replace"]), &format!("before, it was:\n{key}\n"));
    expect_done(&alice.run(&["ls", &url]), "disk0");
    expect_done(&alice.run(&["key", "pin", &url, "--forget"]), "is taken with any key");
    assert!(server.stop().success());
}

#[test]
fn a_secret_file_at_both_ends_lets_in_who_has_it_and_no_other() {
    let scratch = Scratch::new();
    let port = port();
    let url = format!("hs+ip://127.0.0.1:{port}");
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| Client::new(&scratch, name));
    let [shared, own] = ["shared", "own"].map(|name| scratch.text(&format!("{name}.secret")));
    for secret in [&shared, &own] {
        expect_done(&alice.run(&["key", "new", secret]), "only its owner may read it");
    }
    expect_refused(&alice.run(&["key", "new", &own]), 2, "is there already");
    let config = scratch.text("sanwire.toml");
    let client = format!("[[client]]\nid = '{}'\nsecret-file = '{own}'\n", alice.id());
    fs::write(&config, format!("secret-file = '{shared}'\n{client}")).expect("the file is written");
    let options = ["--config", &config, "--control", &scratch.text("secret.sock")].map(str::to_owned);
    let mut server = Server::start_on(&scratch, &[&format!("hs-ip:127.0.0.1:{port}")], &["disk0=ram:1M"], &options);

    expect_done(&bob.run(&["ls", &url, "--secret-file", &shared]), "disk0");
    expect_done(&alice.run(&["ls", &url, "--secret-file", &own]), "disk0");
    expect_refused(
        &alice.run(&["ls", &url, "--secret-file", &shared]),
        1,
        "authentication failed, the passwords differ",
    );
    expect_refused(&carol.run(&["ls", &url]), 1, "the server requires a password, and none was given");
    let password = scratch.secret("password", "a wrong guess\n");
    let guesser = Client::new(&scratch, "guesser");
    expect_refused(
        &guesser.run(&["ls", &url, "--password-file", &password]),
        1,
        "authentication failed, the passwords differ",
    );
    is_audited(&scratch, [&alice, &carol, &guesser]);
    let counted = alice.run(&["ctl", "--socket", &scratch.text("secret.sock"), "statistics"]);
    let dropped = |why: &str, packets: u64| {
        let row = format!("{why} {packets}");
        let has = counted.stdout.lines().any(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") == row);
        assert!(counted.code == Some(0) && has, "{row}: {counted:?}");
    };
    dropped("not authentic", 3);
    for of_none in ["too soon after a wrong password", "protected too little", "not permitted", "conflict of options"] {
        dropped(of_none, 0);
    }

    fs::set_permissions(Path::new(&shared), fs::Permissions::from_mode(0o640)).expect("another mode");
    let public = "(mode 640): chmod 600";
    expect_refused(&bob.run(&["ls", &url, "--secret-file", &shared]), 2, public);
    let serve = ["serve", "--secret-file", &shared, "--wire", "hs-ip:127.0.0.1:1", "--volume", "disk0=ram:1M"];
    expect_refused(&bob.run(&serve), 2, public);
    assert!(server.stop().success());
}
