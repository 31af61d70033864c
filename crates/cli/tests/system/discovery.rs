//! Servers are found, listed and asked; who is not served hears nothing.

use std::time::Duration;

use crate::harness::{Ran, SERVER_ADDRESS, Server, Wire, World, run, run_ok, wait_until};

const TIMEOUT: Duration = Duration::from_secs(120);
const SILENCE: &str = "no server answered";

/// What is discovered, asked until it has this: a server that is held up may answer later than is waited for.
#[track_caller]
fn discover(world: &World, options: &[&str], part: &str) -> String {
    let mut found = String::new();
    wait_until(&format!("{options:?} finds {part}"), TIMEOUT, || {
        found = run(world.sanwire(&[&["discover"], options].concat()), TIMEOUT).stdout;
        found.contains(part)
    });
    found
}

#[test]
fn servers_are_found_and_their_volumes_listed() {
    let Some(world) = World::new("servers_are_found_and_their_volumes_listed", 1500, &[]) else { return };
    let mut server = Server::start(&world, &["fast=ram:8M", "big=ram:16M,block=4096,readonly"]);
    let ask = |arguments: &[&str]| run_ok(world.sanwire(&[arguments, &["--wait", "60"]].concat()), TIMEOUT);

    let found = discover(&world, &["--interface", world.interface()], "hs+eth://lan0/");
    assert!(found.contains("box"), "{found}");
    // Every interface is asked.
    discover(&world, &[], "hs+eth://lan0/");
    let found = discover(&world, &["--host", SERVER_ADDRESS, "--json"], "box");
    let found: serde_json::Value = serde_json::from_str(&found).expect("JSON");
    assert_eq!(found[0]["name"], "box", "{found}");
    assert_eq!(found.as_array().map(Vec::len), Some(1), "{found}");

    for wire in [Wire::Ethernet, Wire::Ip] {
        let listed = ask(&["ls", &wire.server_url()]);
        let lines: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["0", "fast", "8", "MiB", "512", "B", "rw", &wire.url("fast")], "{listed}");
        assert_eq!(lines[2], ["1", "big", "16", "MiB", "4", "KiB", "ro", &wire.url("big")], "{listed}");

        let told: serde_json::Value = serde_json::from_str(&ask(&["info", &wire.url("big"), "--json"])).expect("JSON");
        assert_eq!(told["size_bytes"], 16 << 20, "{told}");
        assert_eq!(told["block_bytes"], 4096, "{told}");
        assert_eq!(told["read_only"], true, "{told}");
        assert!(ask(&["info", &wire.url("fast")]).contains("8 MiB (8388608 bytes)"));

        let ran = run(world.sanwire(&["info", &wire.url("nope"), "--wait", "60"]), TIMEOUT);
        assert_eq!(ran.code, Some(1));
        assert!(ran.stderr.contains("box has no volume 'nope' for this client; it has: fast, big"), "{}", ran.stderr);
    }
    let mac_url = format!("hs+eth://lan0/{}/fast", mac_of(&discover(&world, &["--json"], "hs+eth://lan0/")));
    assert!(ask(&["info", &mac_url]).contains("8388608"));
    assert!(server.stop().success(), "{}", server.log());
}

/// The administrator reads it in the server's log.
#[test]
fn who_is_not_allowed_hears_nothing() {
    let Some(world) = World::new("who_is_not_allowed_hears_nothing", 1500, &[]) else { return };
    let mac = world.client_mac();
    // Rules, and whether they let the client in over Ethernet and over IP.
    for (rules, on_ethernet, over_ip) in [
        (&[][..], false, false),
        (&["--allow", "02:00:5e:77:00:99"], false, false),
        (&["--allow", mac], true, false),
        (&["--allow", "10.77.1.0/24"], false, false),
        (&["--allow", "10.77.0.0/24"], false, true),
        (&["--allow", "10.77.0.2", "--allow", mac], true, true),
    ] {
        let mut server = Server::start_with(&world, &["disk=ram:8M"], rules);
        for (wire, is_served) in [(Wire::Ethernet, on_ethernet), (Wire::Ip, over_ip)] {
            // Silence is waited for no longer than it takes to show it.
            let wait = if is_served { "60" } else { "1.5" };
            let ran = run(world.sanwire(&["ls", &wire.server_url(), "--wait", wait]), TIMEOUT);
            expect(&ran, is_served, &format!("{rules:?} {wire:?}"));
        }
        if !(on_ethernet && over_ip) {
            wait_until("the server tells who asks", TIMEOUT, || {
                server.log().contains(" asks and is not allowed, as client ")
            });
        }
        if on_ethernet {
            discover(&world, &["--interface", "lan0"], "hs+eth://lan0/");
        } else {
            let ran = run(world.sanwire(&["discover", "--interface", "lan0"]), TIMEOUT);
            expect(&ran, false, &format!("{rules:?} discovery"));
        }
        assert!(server.stop().success(), "{}", server.log());
    }
}

#[test]
fn a_client_is_known_by_its_id() {
    let Some(world) = World::new("a_client_is_known_by_its_id", 1500, &[]) else { return };
    let mut server = Server::start(&world, &["disk=ram:8M"]);
    run_ok(world.sanwire(&["ls", &Wire::Ip.server_url(), "--wait", "60"]), TIMEOUT);
    wait_until("the client is told of", TIMEOUT, || server.log().contains("client "));
    let log = server.log();
    let id =
        log.split_once("client ").and_then(|(_, rest)| rest.split(' ').next()).expect("the client's id").to_owned();
    assert!(server.stop().success(), "{log}");

    let mut server = Server::start_with(&world, &["disk=ram:8M"], &["--allow", &id]);
    for wire in [Wire::Ethernet, Wire::Ip] {
        let url = wire.server_url();
        expect(&run(world.sanwire(&["ls", &url, "--wait", "60"]), TIMEOUT), true, "the client with the id");
        expect(&run(world.sanwire_of("stranger", &["ls", &url, "--wait", "1.5"]), TIMEOUT), false, "another client");
    }
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn passwords_must_agree() {
    let Some(world) = World::new("passwords_must_agree", 1500, &[]) else { return };
    let (right, wrong) = (world.scratch.secret("right", "one\n"), world.scratch.secret("wrong", "two\n"));
    let options = ["--allow", "any", "--password-file", &right];
    let mut server = Server::start_with(&world, &["disk=ram:8M"], &options);
    for wire in [Wire::Ethernet, Wire::Ip] {
        let url = wire.server_url();
        run_ok(world.sanwire(&["ls", &url, "--password-file", &right, "--wait", "60"]), TIMEOUT);
        let wrong = (&["ls", &url, "--password-file", &wrong][..], "the passwords differ");
        for (arguments, why) in [wrong, (&["ls", &url], "the server requires a password, and none was given")] {
            // Only a server that is held up says nothing.
            wait_until("it is said why", TIMEOUT, || {
                let ran = run(world.sanwire(arguments), TIMEOUT);
                assert_eq!(ran.code, Some(1), "{arguments:?}");
                let is_said = ran.stderr.contains(why);
                assert!(is_said || ran.stderr.contains(SILENCE), "{arguments:?} {}", ran.stderr);
                is_said
            });
        }
    }
    assert!(server.stop().success(), "{}", server.log());
}

#[track_caller]
fn expect(ran: &Ran, is_served: bool, who: &str) {
    if is_served {
        assert_eq!(ran.code, Some(0), "{who}: {}", ran.stderr);
    } else {
        assert_eq!(ran.code, Some(1), "{who}: {}", ran.stdout);
        assert!(ran.stderr.contains(SILENCE), "{who}: {}", ran.stderr);
    }
}

/// The server's Ethernet address, from discovery.
fn mac_of(found: &str) -> String {
    let found: serde_json::Value = serde_json::from_str(found).expect("JSON");
    found[0]["address"].as_str().expect("an address").to_owned()
}
