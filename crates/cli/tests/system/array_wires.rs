//! Arrays between two hosts: members over the wires of raw Ethernet.

use std::fs;
use std::time::Duration;

use crate::arrays::await_first;
use crate::harness::{Process, Server, World, pattern, run, run_ok, wait_until};

const TIMEOUT: Duration = Duration::from_secs(120);
/// What the mirror of two members of 24 MiB has.
const SIZE_BYTES: usize = 22 << 20;
/// Where the data of a member begins.
const DATA_AT: usize = 1 << 20;

/// A host with one volume for each wire.
fn boxes(world: &World) -> Server {
    let wires = [format!("hdsp:{}", world.interface()), format!("aoe:{}", world.interface())];
    let file = |name: &str| format!("file:{},size=24M", world.scratch.path(name).display());
    let volumes = [format!("one={}", file("one.img")), format!("two={},shelf=7,slot=3", file("two.img"))];
    let volumes: Vec<&str> = volumes.iter().map(String::as_str).collect();
    let allow = ["--allow", "any", "--allow", world.client_mac()];
    Server::start_with(world, &volumes, &[&["--wire", &wires[0], "--wire", &wires[1]][..], &allow].concat())
}

fn urls(world: &World) -> [String; 2] {
    [format!("hdsp://{}/box/one", world.interface()), format!("aoe://{}/7.3", world.interface())]
}

/// Makes a mirror of both.
fn mirror(world: &World) -> [String; 2] {
    let urls = urls(world);
    let create = ["array", "create", "mixed", "--mirror", &urls[0], &urls[1]];
    // Nothing keeps other hosts from a target of AoE: who takes it says so.
    let refused = run(world.sanwire(&create), TIMEOUT);
    assert!(refused.code == Some(1) && refused.stderr.contains("cannot be reserved for this host"), "{refused:?}");
    let made = run(world.sanwire(&[&create[..], &["--unfenced"]].concat()), TIMEOUT);
    assert!(made.code == Some(0) && made.stderr.contains("cannot be reserved for this host"), "{made:?}");
    urls
}

/// A server on the other host, which has the volume of the array. Its socket is its own: tests that run beside this one have such servers too.
fn front(world: &World, volume: &str) -> Process {
    let control = world.scratch.text("front.sock");
    let named = ["serve", "--wire", "hs-ip:127.0.0.1", "--allow", "any", "--control", &control, "--volume", volume];
    let log = world.scratch.path("front.log");
    // The one before, if there was one, told other things.
    let _ = fs::remove_file(&log);
    Process::spawn("front", world.sanwire(&named), log)
}

#[test]
fn members_over_hdsp_and_aoe_are_used_and_their_server_may_be_killed() {
    let test = "members_over_hdsp_and_aoe_are_used_and_their_server_may_be_killed";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let mut behind = boxes(&world);
    let urls = mirror(&world);
    let refused = run(world.sanwire(&["array", "show", &format!("{},exclusive", urls[1])]), TIMEOUT);
    assert!(refused.stdout.contains("AoE has no persistent reservations"), "{refused:?}");
    let volume = format!("d=array:mixed,member={},member={}", urls[0], urls[1]);
    let refused = run(world.sanwire(&["attach", &volume[2..], "--no-device"]), TIMEOUT);
    assert!(refused.code == Some(1) && refused.stderr.contains("add unfenced"), "{refused:?}");
    // Also where only a label names it.
    let named = format!("array:mixed,member={}", urls[0]);
    let refused = run(world.sanwire(&["attach", &named, "--no-device"]), TIMEOUT);
    assert!(refused.code == Some(1) && refused.stderr.contains("add unfenced"), "{refused:?}");
    let mut front = front(&world, &format!("{volume},unfenced"));
    wait_until("the copies are the same", TIMEOUT, || front.log().contains("has all again"));
    let log = front.log();
    assert!(log.contains(&format!("{} cannot be reserved", urls[1])), "{log}");
    assert!(!log.contains(&format!("{} cannot be reserved", urls[0])), "{log}");
    let (image, back) = (world.scratch.path("image"), world.scratch.path("back"));
    let content = pattern(3, SIZE_BYTES);
    fs::write(&image, &content).expect("an image");
    // What is reserved nobody else writes to.
    let image = image.display().to_string();
    let other = run(world.sanwire_of("other", &["cp", "--overwrite", &image, &urls[0]]), TIMEOUT);
    assert!(other.code != Some(0) && other.stderr.contains("reserved"), "{other:?}");
    let copying = world.sanwire(&["cp", "--overwrite", &image, "hs+ip://127.0.0.1/d"]);
    let mut copy = Process::spawn("cp", copying, world.scratch.path("cp.log"));
    std::thread::sleep(Duration::from_millis(100));
    behind.kill();
    behind.restart();
    assert!(copy.wait(TIMEOUT).success(), "{}", copy.log());
    run_ok(world.sanwire(&["cp", "hs+ip://127.0.0.1/d", &back.display().to_string()]), TIMEOUT);
    assert!(fs::read(&back).expect("the copy") == content, "the array holds something else");
    front.signal(rustix::process::Signal::TERM);
    assert!(front.wait(TIMEOUT).success(), "{}", front.log());
    assert!(behind.stop().success(), "{}", behind.log());
}

/// Reads the whole volume of the array.
#[track_caller]
fn expect(world: &World, content: &[u8]) {
    let back = world.scratch.text("back");
    let _ = fs::remove_file(&back);
    run_ok(world.sanwire(&["cp", "hs+ip://127.0.0.1/d", &back]), TIMEOUT);
    assert!(fs::read(&back).expect("the copy") == content, "the array holds something else");
}

/// Writes the whole volume of the array, whose member in this file goes when it has got the first of it.
#[track_caller]
fn fill_while(world: &World, content: &[u8], file: &str, disturb: impl FnOnce()) {
    let image = world.scratch.text("image");
    fs::write(&image, content).expect("an image");
    // It takes twenty seconds: whoever looks at it may be held up for some of them.
    let copying = world.sanwire(&["cp", "--overwrite", "--cap", "1M", &image, "hs+ip://127.0.0.1/d"]);
    let mut copy = Process::spawn("cp", copying, world.scratch.path("cp.log"));
    await_first(&world.scratch.path(file), DATA_AT, content);
    assert!(copy.is_alive(), "it was too fast: {}", copy.log());
    disturb();
    assert!(copy.wait(TIMEOUT).success(), "{}", copy.log());
    expect(world, content);
}

/// HDSP and HyperSCSI over raw Ethernet, each from a server of its own.
#[test]
fn a_mirror_over_two_wires_of_raw_ethernet_outlives_each_of_its_servers_in_turn() {
    let test = "a_mirror_over_two_wires_of_raw_ethernet_outlives_each_of_its_servers_in_turn";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let volume = |name: &str| format!("{name}=file:{},size=24M", world.scratch.text(&format!("{name}.img")));
    let hdsp = format!("hdsp:{}", world.interface());
    let mut one = Server::start_alone(&world, &[&volume("one")], &["--wire", &hdsp, "--allow", "any"]);
    let mut two = Server::start_beside(&world, "second", world.interface(), &[&volume("two")], &["--allow", "any"]);
    let urls = [format!("hdsp://{}/box/one", world.interface()), format!("hs+eth://{}/second/two", world.interface())];
    run_ok(world.sanwire(&["array", "create", "apart", "--mirror", &urls[0], &urls[1]]), TIMEOUT);
    let mut front = front(&world, &format!("d=array:apart,member={},member={}", urls[0], urls[1]));
    let said = |front: &Process, what: &str| front.log().matches(what).count();
    wait_until("the copies are the same", TIMEOUT, || said(&front, "has all again") == 1);
    for (number, server, file) in [(1, &mut one, "one.img"), (2, &mut two, "two.img")] {
        fill_while(&world, &pattern(number, SIZE_BYTES), file, || server.kill());
        let is_out = format!("member {number} ({}) is out", urls[number as usize - 1]);
        wait_until("it is said that it is out", TIMEOUT, || said(&front, &is_out) == 1);
        server.restart();
        wait_until("it is back", TIMEOUT, || said(&front, "has all again") == number as usize + 1);
    }
    let content = pattern(2, SIZE_BYTES);
    expect(&world, &content);
    front.signal(rustix::process::Signal::TERM);
    assert!(front.wait(TIMEOUT).success(), "{}", front.log());
    let scrubbed = run_ok(world.sanwire(&["array", "scrub", "apart", &urls[0], &urls[1]]), TIMEOUT);
    assert!(scrubbed.contains("are the same"), "{scrubbed}");
    for (server, file) in [(&mut one, "one.img"), (&mut two, "two.img")] {
        assert!(server.stop().success(), "{}", server.log());
        let held = fs::read(world.scratch.path(file)).expect("the member's file");
        assert!(held[DATA_AT..DATA_AT + SIZE_BYTES] == content, "a member differs");
    }
}

#[test]
fn an_array_is_found_by_its_labels_on_whichever_servers_answer() {
    let test = "an_array_is_found_by_its_labels_on_whichever_servers_answer";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let mut behind = boxes(&world);
    mirror(&world);
    let everybody = format!("hdsp://{}", world.interface());
    wait_until("the server answers", TIMEOUT, || {
        run(world.sanwire(&["discover", &everybody]), TIMEOUT).stdout.contains("one")
    });
    // Both volumes are there on three wires each: each is taken once.
    let end = |mut front: Process| {
        front.signal(rustix::process::Signal::TERM);
        assert!(front.wait(TIMEOUT).success(), "{}", front.log());
    };
    for (written, places) in [
        ("d=array:mixed".to_owned(), ["hs+eth://lan0/box/one", "hs+eth://lan0/box/two"]),
        (format!("d=array:mixed,discover={everybody}"), ["hdsp://lan0/box/one", "hdsp://lan0/box/two"]),
    ] {
        let front = front(&world, &written);
        wait_until("it serves", TIMEOUT, || front.log().contains("serves d"));
        for (number, place) in (1..).zip(places) {
            let said = format!("member {number} was found at {place}");
            assert!(front.log().contains(&said), "{said}: {}", front.log());
        }
        end(front);
    }
    // What was named is not found a second time by another wire.
    let named = front(&world, &format!("d=array:mixed,member={},discover={everybody}", urls(&world)[0]));
    wait_until("it serves", TIMEOUT, || named.log().contains("serves d"));
    assert!(named.log().matches("was found at").count() == 1, "{}", named.log());
    end(named);
    let unknown = run(world.sanwire(&["attach", "array:other", "--no-device"]), TIMEOUT);
    assert!(unknown.stderr.contains("no member of an array called other was found"), "{unknown:?}");
    assert!(unknown.stderr.contains("6 ways to volumes were looked at, 0 of them to members of it"), "{unknown:?}");
    assert!(behind.stop().success(), "{}", behind.log());
}
