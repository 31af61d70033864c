//! Servers are found and used by their names alone, and what a client may not see it is not shown.

use std::fs;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{AUTHORITY, SERVER_NAME, Server, Wire, World, run, run_ok, wait_until};

const TIMEOUT: Duration = Duration::from_secs(120);
const OTHER_MAC: &str = "02:00:5e:77:00:03";

/// What is found, asked until it is so: a server that is held up may answer later than is waited for.
#[track_caller]
fn find(world: &World, arguments: &[&str], is_so: impl Fn(&str) -> bool) -> String {
    let mut found = String::new();
    wait_until(&format!("{arguments:?} finds all"), TIMEOUT, || {
        let ran = run(world.sanwire(&[&["discover", "--time", "5"], arguments].concat()), TIMEOUT);
        let is_found = ran.code == Some(0) && is_so(&ran.stdout);
        if !is_found {
            println!("{ran:?}");
        }
        found = ran.stdout;
        is_found
    });
    found
}

#[track_caller]
fn discover(world: &World, arguments: &[&str], is_so: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let list = |found: &str| serde_json::from_str::<Vec<Value>>(found).expect("a list");
    list(&find(world, &[&["--json"], arguments].concat(), |found| is_so(&list(found))))
}

fn volumes(server: &Value) -> Vec<&str> {
    let list = server["volumes"].as_array().expect("volumes");
    list.iter().map(|volume| volume["name"].as_str().expect("a name")).collect()
}

#[test]
fn discovery_shows_each_server_with_what_this_client_may_see() {
    let test = "discovery_shows_each_server_with_what_this_client_may_see";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let [other_interface, ethernet] = world.add_link(OTHER_MAC);
    let id = run_ok(world.sanwire(&["id"]), TIMEOUT).trim().to_owned();
    let config = world.scratch.path("clients.toml");
    let client = format!("[[client]]\nid = \"{id}\"\nname = \"alice\"\nvolumes = [\"a-*\"]\n");
    fs::write(&config, client).expect("a configuration");
    let (config, password) = (config.display().to_string(), world.scratch.secret("password", "secret\n"));

    let specs = ["a-one=ram:8M,security=aes-256-gcm", "a-two=ram:16M,readonly", "b=ram:8M"];
    let mut first = Server::start_with(&world, &specs, &["--config", &config]);
    let options = ["--allow", "any", "--password-file", &password];
    let mut second = Server::start_beside(&world, "crate", other_interface, &["c=ram:8M"], &options);

    let found = discover(&world, &["--interface", ethernet], |found| {
        let [open, shut] = found else { return false };
        volumes(open).len() == 2 && shut["problem"].as_str().is_some_and(|why| why.contains("a password"))
    });
    let [open, shut] = &found[..] else { panic!("two servers: {found:?}") };
    assert_eq!(
        (&open["name"], &open["url"], &open["wire"]),
        (&"box".into(), &"hs+eth://br0/box".into(), &"HS/eth".into())
    );
    assert_eq!(volumes(open), ["a-one", "a-two"], "{open}");
    let one = &open["volumes"][0];
    assert_eq!((&one["security"], &one["url"]), (&"aes-256-gcm".into(), &"hs+eth://br0/box/a-one".into()));
    assert!(one["packet_max_bytes"].as_u64().is_some_and(|bytes| bytes > 1000), "{one}");
    assert_eq!((&open["links"][0]["interface"], &open["problem"]), (&ethernet.into(), &Value::Null));
    assert_eq!((&shut["name"], &shut["address"], volumes(shut).len()), (&"crate".into(), &OTHER_MAC.into(), 0));
    assert!(shut["problem"].as_str().is_some_and(|why| why.contains("the server requires a password")), "{shut}");

    discover(&world, &["--interface", ethernet, "--password-file", &password], |found| {
        found.len() == 2 && volumes(&found[1]) == ["c"]
    });
    let table = find(&world, &["--wide", "--interface", ethernet], |table| {
        table.contains("a-two") && table.contains("the server requires a password")
    });
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    let one = ["box", "a-one", "8", "MiB", "rw", "hs+eth://br0/box/a-one", "aes-256-gcm"];
    assert_eq!(lines[1][..7], one, "{table}");
    assert_eq!(lines[2][..5], ["box", "a-two", "16", "MiB", "ro"], "{table}");
    assert_eq!(lines[3][..2], ["crate", "-"], "{table}");
    assert!(table.contains("hs+eth://br0/crate: ") && table.contains("the server requires a password"), "{table}");
    assert!(first.stop().success() && second.stop().success(), "{}", first.log());
}

#[test]
fn a_name_alone_finds_its_server_and_no_other() {
    let Some(world) = World::new("a_name_alone_finds_its_server_and_no_other", 1500, &[]) else { return };
    let [other_interface, ethernet] = world.add_link(OTHER_MAC);
    let mut first = Server::start(&world, &["one=ram:8M"]);
    let mut second = Server::start_beside(&world, "crate", other_interface, &["two=ram:16M"], &["--allow", "any"]);
    // Ports of the bridge are interfaces too: each leads to one server, the bridge to both.
    for (url, size) in
        [("hs+eth:///box/one", 8 << 20), ("hs+eth:///crate/two", 16 << 20), ("hs+eth://br0/crate/two", 16 << 20)]
    {
        let told = run_ok(world.sanwire(&["info", url, "--json", "--wait", "60"]), TIMEOUT);
        let told: Value = serde_json::from_str(&told).expect("JSON");
        assert_eq!(told["size_bytes"], size, "{told}");
    }
    let ran = run(world.sanwire(&["info", "hs+eth:///nobody/one", "--wait", "1"]), TIMEOUT);
    assert!(ran.code == Some(1) && ran.stderr.contains("no server answered"), "{}", ran.stderr);
    assert!(second.stop().success(), "{}", second.log());

    let twin = ["two=ram:16M"];
    let mut second = Server::start_beside(&world, SERVER_NAME, other_interface, &twin, &["--allow", "any"]);
    for url in ["hs+eth:///box/one", "hs+eth://br0/box/one"] {
        // On a busy machine the second one may answer later than is waited for.
        wait_until("both are heard", TIMEOUT, || {
            let ran = run(world.sanwire(&["info", url]), TIMEOUT);
            ran.code == Some(1) && ran.stderr.contains("2 servers are called box: hs+eth://")
        });
    }
    let found = discover(&world, &["--interface", ethernet], |found| {
        found.len() == 2 && found.iter().all(|server| !volumes(server).is_empty())
    });
    let urls: Vec<&str> = found.iter().filter_map(|server| server["url"].as_str()).collect();
    assert_eq!(urls, ["hs+eth://br0/02:00:5e:77:00:01", &format!("hs+eth://br0/{OTHER_MAC}")]);
    assert_eq!(volumes(&found[1]), ["two"], "by its address each is shown for itself");
    assert!(first.stop().success() && second.stop().success(), "{}", first.log());
}

#[test]
fn hosts_are_shown_by_the_names_they_were_asked_by() {
    let Some(world) = World::new("hosts_are_shown_by_the_names_they_were_asked_by", 1500, &[]) else { return };
    let mut server = Server::start_alone(&world, &["one=ram:8M"], &["--allow", "any", "--wire", "hs-ip:0.0.0.0"]);
    let found =
        discover(&world, &["--host", "10.77.0.1"], |found| found.first().is_some_and(|it| !volumes(it).is_empty()));
    assert_eq!((&found[0]["url"], &found[0]["wire"]), (&Wire::Ip.server_url().into(), &"HS/IP".into()));
    assert_eq!(volumes(&found[0]), ["one"]);
    // Its loopback takes larger packets than the way to it.
    let carried = found[0]["volumes"][0]["packet_max_bytes"].to_string();
    assert!(found[0]["packet_max_bytes"].as_u64() > carried.parse().ok(), "{found:?}");
    let table = find(&world, &["--wide", "--host", "10.77.0.1"], |table| table.contains("/one"));
    let [head, row] = [0, 1].map(|line| table.lines().nth(line).expect("a line"));
    let at = head.find("PACKET").expect("a column");
    assert_eq!(row[at..].split_whitespace().next(), Some(&*carried), "{table}");
    assert!(server.stop().success(), "{}", server.log());
}

/// What discovery prints can be used as it is, whichever portal was asked.
#[test]
fn a_target_is_told_at_the_portal_by_which_it_is_reached() {
    let Some(world) = World::new("a_target_is_told_at_the_portal_by_which_it_is_reached", 1500, &[]) else { return };
    world.add_path(1, 1500);
    let text = format!("[[target]]\nname = '{AUTHORITY}:second'\nlun.0 = 'disk'\nportal-groups = [2]\n");
    fs::write(world.scratch.path("sanwire.toml"), text).expect("a configuration");
    let wires = ["--wire", "iscsi:10.77.0.1,1", "--wire", "iscsi:10.77.1.1,2", "--allow", "any"];
    let config = world.scratch.text("sanwire.toml");
    let mut server = Server::start_alone(&world, &["disk=ram:8M"], &[&wires[..], &["--config", &config]].concat());
    let [asked, reached] = ["10.77.0.1", "10.77.1.1"].map(|host| format!("iscsi://{host}/{AUTHORITY}:second"));
    for host in ["10.77.0.1", "10.77.1.1"] {
        let found = find(&world, &[&format!("iscsi://{host}"), "--json"], |found| found.contains(":second"));
        let found: Value = serde_json::from_str(&found).expect("JSON");
        let second = found.as_array().expect("targets").iter().find(|it| it["name"] == format!("{AUTHORITY}:second"));
        assert_eq!(second.expect("it is told")["url"], reached, "{found}");
    }
    let told = run_ok(world.sanwire(&["info", &format!("{reached}/0"), "--wait", "60"]), TIMEOUT);
    assert!(told.contains("8 MiB"), "{told}");
    wait_until("it is refused", TIMEOUT, || {
        let refused = run(world.sanwire(&["info", &format!("{asked}/0")]), TIMEOUT);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        refused.stderr.contains("`sanwire discover iscsi://HOST` lists")
    });
    assert!(server.log().contains(&reached) && !server.log().contains(&asked), "{}", server.log());
    assert!(server.stop().success(), "{}", server.log());
}
