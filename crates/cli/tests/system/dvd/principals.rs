//! Who may use a derived volume, and who may make one.

use std::fs;

use super::{TIMEOUT, dvd_ok, serve, urls};
use crate::harness::{AUTHORITY, CLIENT_ADDRESS, Initiator, SERVER_ADDRESS, World, run, run_ok};

const HOST: &str = "iqn.2026-11.org.example:host";
const OTHER_HOST: &str = "iqn.2026-11.org.example:other";

/// The class and detail of a login that is not allowed (RFC 7143 11.13.5).
const FORBIDDEN: [u8; 2] = [2, 2];

fn id(world: &World, who: &str) -> String {
    run_ok(world.sanwire_of(who, &["id"]), TIMEOUT).trim().to_owned()
}

#[test]
fn who_is_no_principal_finds_nothing_on_any_wire() {
    let Some(world) = World::new("who_is_no_principal_finds_nothing_on_any_wire", 1500, &[]) else { return };
    let control = world.scratch.text("c.sock");
    let alice = id(&world, "alice");
    let cam = format!("cam=dvd:disk,region=1M+1M,principal=key:{alice},principal=claimed:{HOST}");
    // Who may use the parent of a nested one, and not that, may not use it.
    let volumes = ["disk=ram:16M", &cam, "part=dvd:cam,principal=any", "open=dvd:disk,principal=any"];
    let mut server = serve(&world, &volumes, &["--control", &control]);
    for volume in ["cam", "part"] {
        for (wire, url) in urls(&world, volume).into_iter().filter(|(wire, _)| !matches!(*wire, "iscsi" | "iser")) {
            let server = url.strip_suffix(&format!("/{volume}")).expect("a server");
            let listed = |who: &str| run_ok(world.sanwire_of(who, &["ls", server]), TIMEOUT);
            let told = run_ok(world.sanwire_of("alice", &["info", &url]), TIMEOUT);
            assert!(told.contains("1 MiB"), "{wire}: {told}");
            assert!(listed("alice").contains(&url), "{wire}");
            let refused = run(world.sanwire_of("bob", &["info", &url]), TIMEOUT);
            assert_eq!(refused.code, Some(1), "{wire}: {}", refused.stdout);
            let seen = listed("bob");
            assert!(!seen.contains(&url) && seen.contains("/open") && seen.contains("/disk"), "{wire}: {seen}");
        }
        let portal = format!("{SERVER_ADDRESS}:3260");
        let target = format!("{AUTHORITY}:{volume}");
        let log_in = |name: &str| world.as_client(|| Initiator::log_in(&portal, name, &target, 1));
        assert_eq!(log_in(OTHER_HOST).err(), Some(FORBIDDEN), "{volume}");
        let mut session = log_in(HOST).expect("a session");
        let capacity = world.as_client(|| session.good(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[], 8));
        assert_eq!(capacity, [0, 0, 7, 255, 0, 0, 2, 0], "{volume}: 2048 blocks");
        let url = format!("iser://{SERVER_ADDRESS}/{target}/0");
        for (name, is_let_in) in [(HOST, true), (OTHER_HOST, false)] {
            let told = run(world.sanwire(&["info", &url, "--initiator-name", name]), TIMEOUT);
            assert_eq!(told.code == Some(0), is_let_in, "{name} at {url}: {}{}", told.stdout, told.stderr);
        }
        for scheme in ["iscsi", "iser"] {
            let found = run_ok(world.sanwire_of("bob", &["ls", &format!("{scheme}://{SERVER_ADDRESS}")]), TIMEOUT);
            assert!(!found.contains(&target) && found.contains(&format!("{AUTHORITY}:open")), "{scheme}: {found}");
        }
    }
    assert!(server.stop().success(), "{}", server.log());
}

/// On the wires that have addresses of hosts.
#[test]
fn a_host_is_a_principal_by_its_address() {
    let Some(world) = World::new("a_host_is_a_principal_by_its_address", 1500, &[]) else { return };
    let [here, there] = [("here", CLIENT_ADDRESS), ("there", "10.77.0.99")]
        .map(|(name, address)| format!("{name}=dvd:disk,region=1M+1M,principal={address}"));
    let mut server = serve(&world, &["disk=ram:16M", &here, &there], &[]);
    for (volume, is_let_in) in [("here", true), ("there", false)] {
        for (_, url) in urls(&world, volume).into_iter().filter(|(wire, _)| !matches!(*wire, "hs+eth" | "hdsp")) {
            let told = run(world.sanwire(&["info", &url]), TIMEOUT);
            assert_eq!(told.code == Some(0), is_let_in, "{url}: {}{}", told.stdout, told.stderr);
        }
    }
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn a_chap_user_logs_in_to_a_target_of_its_volume_alone() {
    let Some(world) = World::new("a_chap_user_logs_in_to_a_target_of_its_volume_alone", 1500, &[]) else { return };
    let [alice, bob] = [("alice", "alice has a secret"), ("bob", "bob has another one")]
        .map(|(user, secret)| (user, world.scratch.secret(&format!("{user}.secret"), secret)));
    let user = |(user, secret): &(&str, String)| format!("{{ user = \"{user}\", secret-file = \"{secret}\" }}");
    let config = format!(
        "[[target]]\nname = \"{AUTHORITY}:disk\"\nlun = {{ 0 = \"disk\" }}\nchap = [{}, {}]\n",
        user(&alice),
        user(&bob)
    );
    fs::write(world.scratch.path("sanwire.toml"), config).expect("a configuration");
    let options = ["--config", &world.scratch.text("sanwire.toml"), "--control", &world.scratch.text("c.sock")];
    let mut server = serve(&world, &["disk=ram:16M"], &options);
    let made = dvd_ok(&world.scratch, &["create", "disk", "cam", "--region", "1M+1M", "--principal", "chap:alice"]);
    assert!(made.contains(&format!("as logical unit 0 of {AUTHORITY}:cam")), "{made}");
    let none = dvd_ok(&world.scratch, &["create", "disk", "eve", "--principal", "chap:eve"]);
    assert!(none.contains("no target of disk knows the secret of eve"), "{none}");
    let info = |(user, secret): &(&str, String), volume: &str| {
        let url = format!("iscsi://{user}@{SERVER_ADDRESS}/{AUTHORITY}:{volume}/0");
        run(world.sanwire(&["info", &url, "--password-file", secret]), TIMEOUT)
    };
    for (who, volume, is_let_in) in [(&alice, "cam", true), (&bob, "cam", false), (&bob, "disk", true)] {
        let told = info(who, volume);
        assert_eq!(told.code == Some(0), is_let_in, "{} at {volume}: {}{}", who.0, told.stdout, told.stderr);
    }
    server.kill();
    server.restart();
    let again = info(&alice, "cam");
    assert_eq!(again.code, Some(0), "after a restart: {}", again.stderr);
    assert_ne!(info(&bob, "cam").code, Some(0));
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn an_owner_derives_from_its_volume_in_band_and_may_do_nothing_else() {
    let test = "an_owner_derives_from_its_volume_in_band_and_may_do_nothing_else";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let owner = id(&world, "owner");
    let volumes = [&format!("mine=ram:16M,owner=key:{owner}")[..], "other=ram:16M"];
    let mut server = serve(&world, &volumes, &["--control", &world.scratch.text("c.sock")]);
    for scheme in ["hs+ip", "visa", "visa+tcp"] {
        let at = format!("{scheme}://{SERVER_ADDRESS}");
        let ask = |who: &str, arguments: &[&str]| {
            run(world.sanwire_of(who, &[&["dvd"], arguments, &["--at", &at]].concat()), TIMEOUT)
        };
        let create = |parent| ["create", parent, "cam", "--region", "1M+1M", "--principal", "any"];
        let made = ask("owner", &create("mine"));
        assert!(made.code == Some(0) && made.stdout.contains("volume cam is derived from mine"), "{}", made.stderr);
        let listed = ask("owner", &["ls"]);
        assert!(listed.stdout.contains("cam") && listed.stdout.contains("1M+1M"), "{}", listed.stdout);
        for (who, arguments, part) in [
            ("owner", &create("other")[..], "does not own volume other"),
            ("owner", &["revoke", "mine"], "does not own volume mine"),
            ("stranger", &create("mine"), "may not manage the server"),
            ("stranger", &["revoke", "cam"], "may not manage the server"),
        ] {
            let refused = ask(who, arguments);
            assert!(refused.code == Some(1) && refused.stderr.contains(part), "{arguments:?}: {}", refused.stderr);
        }
        for command in [&["status"][..], &["remove-volume", "cam"], &["add-volume", "x=ram:1M"]] {
            let refused = run(world.sanwire_of("owner", &[&["manage", &at], command].concat()), TIMEOUT);
            assert!(
                refused.code == Some(1) && refused.stderr.contains("and no more"),
                "{command:?}: {}",
                refused.stderr
            );
        }
        let revoked = ask("owner", &["revoke", "cam"]);
        assert!(revoked.stdout.contains("volume cam, which was derived from mine, is revoked"), "{}", revoked.stderr);
    }
    let audit = fs::read_to_string(world.state("server").join("sanwire/audit-box.jsonl")).expect("an audit log");
    let by_owner = audit.lines().filter(|line| line.contains(&owner)).collect::<Vec<_>>();
    assert!(by_owner.iter().any(|line| line.contains("create-dvd") && line.contains("\"done\"")), "{audit}");
    assert!(by_owner.iter().any(|line| line.contains("create-dvd") && line.contains("\"refused\"")), "{audit}");
    assert!(server.stop().success(), "{}", server.log());
}
