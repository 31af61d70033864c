//! Copies that go straight from one server to another: which way the data takes, who may have that done, and what becomes of a copy that is
//! interrupted.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;

use crate::harness::{
    FAR_FROM_CLIENT, Process, Ran, SERVER_ADDRESS, Server, Third, World, pattern, run, run_ok, wait_until,
};

const TIMEOUT: Duration = Duration::from_secs(120);
const MIB: usize = 1 << 20;
const OWNERS: &str = "direct-copies = 'owners'";

/// What the client may do at a server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum May {
    Manage,
    Own,
    Nothing,
}

/// The wires of both servers, so that data goes by the best that they have in common, and where the client reaches them.
struct Wires {
    near: [String; 2],
    far: [String; 2],
    near_url: String,
    far_url: String,
}

impl Wires {
    /// Both serve on IP, and on one wire more, if any, between them.
    fn ip(more: Option<&str>) -> Wires {
        let more = |ip: &str| [ip.to_owned(), more.unwrap_or(ip).to_owned()];
        let [near_url, far_url] = [SERVER_ADDRESS, FAR_FROM_CLIENT].map(|address| format!("hs+ip://{address}"));
        Wires { near: more(&format!("hs-ip:{SERVER_ADDRESS}")), far: more("hs-ip:0.0.0.0"), near_url, far_url }
    }

    /// They have nothing in common but VISA.
    fn visa() -> Wires {
        let near = ["hs-eth:lan0".to_owned(), "visa:0.0.0.0".to_owned()];
        let far = ["hs-ip:0.0.0.0".to_owned(), "visa:0.0.0.0".to_owned()];
        Wires { near, far, near_url: "hs+eth://lan0/box".to_owned(), far_url: format!("hs+ip://{FAR_FROM_CLIENT}") }
    }

    /// They have nothing else at all: the client asks them by it, too, by both of its carriers.
    fn visa_alone() -> Wires {
        let both = || ["visa:0.0.0.0".to_owned(), "visa:0.0.0.0".to_owned()];
        let (near_url, far_url) = (format!("visa://{SERVER_ADDRESS}"), format!("visa+tcp://{FAR_FROM_CLIENT}"));
        Wires { near: both(), far: both(), near_url, far_url }
    }
}

/// A client, the server of the source, and that of the destination.
struct Hosts {
    near_url: String,
    far_url: String,
    near: Server,
    far: Server,
    third: Third,
    world: World,
}

impl Hosts {
    /// Servers with volumes of so many MiB, that which is copied with such keys; and at each what the client may do, and more lines of the
    /// configuration, in which `SCRATCH` is the directory of the test.
    fn new(test: &str, mib: usize, keys: &str, of_near: (May, &str), of_far: (May, &str)) -> Option<Hosts> {
        Hosts::over(&Wires::ip(None), test, mib, keys, (of_near, of_far))
    }

    /// The same on these wires.
    fn over(
        wires: &Wires,
        test: &str,
        mib: usize,
        keys: &str,
        (of_near, of_far): ((May, &str), (May, &str)),
    ) -> Option<Hosts> {
        let world = World::new(test, 9000, &[])?;
        let third = Third::add(&world, 9000);
        let id = run_ok(world.sanwire(&["id"]), TIMEOUT).trim().to_owned();
        let volume = |name: &str, may: May, keys: &str| {
            let owner = if may == May::Own { format!(",owner=key:{id}") } else { String::new() };
            format!("{name}=file:{},size={mib}M{owner}{keys}", world.scratch.text(&format!("{name}.img")))
        };
        let configuration = |name: &str, (may, lines): (May, &str)| {
            let manage = may == May::Manage;
            let lines = lines.replace("SCRATCH", &world.scratch.directory().display().to_string());
            fs::write(world.scratch.path(name), format!("{lines}\n[[client]]\nid = '{id}'\nmanage = {manage}\n"))
                .expect("a configuration");
            world.scratch.text(name)
        };
        fs::create_dir(world.scratch.path("pool")).expect("a directory for a pool");
        let configurations = [configuration("near.toml", of_near), configuration("far.toml", of_far)];
        let options = |at: usize, wires: &[String; 2]| {
            let mut options = vec!["--config".to_owned(), configurations[at].clone(), "--allow".into(), "any".into()];
            let mut wires = wires.to_vec();
            wires.dedup();
            options.extend(wires.into_iter().flat_map(|wire| ["--wire".to_owned(), wire]));
            options
        };
        let (near, far) = (options(0, &wires.near), options(1, &wires.far));
        let [near, far]: [Vec<&str>; 2] = [&near, &far].map(|options| options.iter().map(String::as_str).collect());
        let volumes = [volume("disk", of_near.0, keys), volume("other", of_near.0, "")];
        let near = Server::start_alone(&world, &[&volumes[0], &volumes[1]], &near);
        let far = third.serve(&world, &[&volume("copy", of_far.0, "")], &far);
        let (near_url, far_url) = (wires.near_url.clone(), wires.far_url.clone());
        Some(Hosts { near_url, far_url, near, far, third, world })
    }

    /// The same for who manages both.
    fn managed(test: &str, mib: usize, keys: &str) -> Option<Hosts> {
        Hosts::new(test, mib, keys, (May::Manage, ""), (May::Manage, ""))
    }

    fn arguments(&self, source: &str, options: &[&str]) -> Vec<String> {
        let ends = [format!("{}/{source}", self.near_url), format!("{}/copy", self.far_url)];
        let words = ["cp", "--json"].into_iter().chain(options.iter().copied()).map(str::to_owned);
        words.chain(ends).collect()
    }

    fn cp(&self, options: &[&str]) -> Ran {
        self.cp_of("disk", options)
    }

    fn cp_of(&self, source: &str, options: &[&str]) -> Ran {
        let arguments = self.arguments(source, options);
        run(self.world.sanwire(&arguments.iter().map(String::as_str).collect::<Vec<_>>()), TIMEOUT)
    }

    /// Begins a copy, and waits until it has got somewhere that is stable.
    fn begin(&self, options: &[&str]) -> Process {
        let mut copy = self.spawn(options);
        let journals = self.world.state("client").join("sanwire/cp");
        wait_until("the copy has got somewhere", TIMEOUT, || {
            assert!(copy.is_alive(), "it was too fast: {}", copy.log());
            fs::read_dir(&journals).is_ok_and(|mut entries| entries.next().is_some())
        });
        copy
    }

    fn spawn(&self, options: &[&str]) -> Process {
        let arguments = self.arguments("disk", options);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        Process::spawn("cp", self.world.sanwire(&arguments), self.path("cp.log"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.world.scratch.path(name)
    }

    /// Puts data into the source: so many MiB at its start.
    fn fill(&self, mib: usize) {
        let file = File::options().write(true).open(self.path("disk.img")).expect("the source");
        file.write_all_at(&pattern(7, mib * MIB), 0).expect("data");
    }

    /// What is derived at the destination.
    fn derived(&self) -> String {
        run_ok(self.world.sanwire(&["dvd", "ls", "--at", &self.far_url]), TIMEOUT)
    }

    #[track_caller]
    fn expect_same(&self) {
        self.expect_copy_of("disk.img");
    }

    #[track_caller]
    fn expect_copy_of(&self, source: &str) {
        let (source, copy) = (fs::read(self.path(source)), fs::read(self.path("copy.img")));
        assert!(source.expect("the source") == copy.expect("the copy"), "the copy differs");
    }

    fn stop(mut self) {
        assert!(self.near.stop().success(), "{}", self.near.log());
        assert!(self.far.stop().success(), "{}", self.far.log());
    }
}

#[track_caller]
fn told(ran: &Ran) -> serde_json::Value {
    assert_eq!(ran.code, Some(0), "{ran:?}");
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

#[test]
fn data_goes_straight_from_server_to_server_and_holes_do_not_go() {
    let test = "data_goes_straight_from_server_to_server_and_holes_do_not_go";
    let Some(hosts) = Hosts::managed(test, 256, "") else { return };
    hosts.fill(64);
    let before = (hosts.third.carried_by_client(&hosts.world), hosts.third.carried_bytes());
    // By itself, since both servers allow it.
    let ran = hosts.cp(&["--verify"]);
    let direct = told(&ran);
    let by_client = hosts.third.carried_by_client(&hosts.world) - before.0;
    let straight = hosts.third.carried_bytes() - before.1;
    assert_eq!(direct["direct"], true, "{ran:?}");
    assert!(direct["way"].as_str().is_some_and(|way| way.starts_with("hs+ip://10.78.0.1")), "{direct}");
    assert!(direct["data_bytes"].as_u64().is_some_and(|bytes| (64 << 20..66 << 20).contains(&bytes)), "{direct}");
    assert_eq!(direct["verified_bytes"], 256_u64 << 20);
    assert!(by_client < MIB as u64, "{by_client} bytes went to the client's host or came from there");
    assert!(straight > 64 * MIB as u64, "only {straight} bytes went from server to server");
    hosts.expect_same();
    let used_bytes = fs::metadata(hosts.path("copy.img")).expect("the copy").blocks() * 512;
    assert!(used_bytes < 66 * MIB as u64, "{used_bytes} bytes are no longer sparse");
    assert!(!hosts.derived().contains("copy-"), "what was made for the copy is taken back: {}", hosts.derived());
    // What the copy did is seen where it was done.
    let before = (hosts.third.carried_by_client(&hosts.world), hosts.third.carried_bytes());
    let direct = told(&hosts.cp(&["--overwrite", "--direct"]));
    let straight = hosts.third.carried_bytes() - before.1;
    assert!(straight < 68 * MIB as u64, "{straight} bytes went for 64 MiB of data in 256 MiB: {direct}");
    let through = told(&hosts.cp(&["--overwrite", "--no-direct"]));
    assert!(through["direct"] == false && through["way"].is_null(), "{through}");
    let by_client = hosts.third.carried_by_client(&hosts.world) - before.0;
    assert!(by_client > 128 * MIB as u64, "{by_client} bytes");
    hosts.stop();
}

#[test]
fn a_protected_volume_is_copied_directly_and_protected_on_the_way() {
    let test = "a_protected_volume_is_copied_directly_and_protected_on_the_way";
    let Some(hosts) = Hosts::managed(test, 32, ",security=aes-128-gcm") else { return };
    hosts.fill(24);
    let mut copy = hosts.begin(&["--direct", "--cap", "1M"]);
    let ask = |arguments: &[&str]| -> serde_json::Value {
        let told = run_ok(hosts.world.sanwire(arguments), TIMEOUT);
        serde_json::from_str(&told).unwrap_or_else(|error| panic!("{error}: {told}"))
    };
    let is_of_copy = |name: &serde_json::Value| name.as_str().is_some_and(|name| name.starts_with("copy-"));
    let listed = ask(&["dvd", "ls", "--json", "--at", &hosts.far_url]);
    let made = listed["dvds"].as_array().and_then(|dvds| dvds.iter().find(|dvd| is_of_copy(&dvd["name"])));
    assert_eq!(made.and_then(|made| made["security"].as_str()), Some("aes-128-gcm"), "{listed}");
    // The other volume demands nothing: it is the source's server that does.
    let told = ask(&["manage", &hosts.far_url, "sessions", "--json"]);
    let uses_it = |session: &&serde_json::Value| {
        session["volume_names"].as_array().is_some_and(|names| names.iter().any(is_of_copy))
    };
    let session = told["sessions"].as_array().and_then(|sessions| sessions.iter().find(uses_it));
    assert_eq!(session.and_then(|session| session["security"].as_str()), Some("aes-128-gcm"), "{told}");
    assert!(copy.wait(TIMEOUT).success(), "{}", copy.log());
    hosts.expect_same();
    assert!(!hosts.derived().contains("copy-"), "{}", hosts.derived());
    hosts.stop();
}

#[test]
fn owners_of_both_volumes_copy_directly_and_others_through_their_host() {
    let test = "owners_of_both_volumes_copy_directly_and_others_through_their_host";
    let cases = [
        ((May::Own, OWNERS), (May::Own, OWNERS), None),
        ((May::Own, OWNERS), (May::Nothing, OWNERS), Some("may not manage")),
        ((May::Nothing, OWNERS), (May::Own, OWNERS), Some("may not manage")),
        ((May::Manage, "direct-copies = 'off'"), (May::Manage, ""), Some("direct-copies")),
        ((May::Manage, ""), (May::Manage, "direct-copies = 'off'"), Some("direct-copies")),
        ((May::Own, ""), (May::Own, OWNERS), Some("direct-copies")),
        ((May::Manage, "direct-copy-to = ['10.9.0.0/16']"), (May::Manage, ""), Some("direct-copy-to")),
    ];
    for (near, far, refused) in cases {
        let Some(hosts) = Hosts::new(test, 8, "", near, far) else { return };
        hosts.fill(2);
        let forced = hosts.cp(&["--direct"]);
        match refused {
            None => assert_eq!(told(&forced)["direct"], true),
            Some(reason) => {
                assert!(forced.code == Some(1) && forced.stderr.contains(reason), "{forced:?}");
                assert!(fs::read(hosts.path("copy.img")).expect("the copy").iter().all(|byte| *byte == 0));
                let through = told(&hosts.cp(&[]));
                assert_eq!(through["direct"], false, "{through}");
            }
        }
        hosts.expect_same();
        if refused != Some("may not manage") {
            assert!(!hosts.derived().contains("copy-"), "{}", hosts.derived());
        }
        hosts.stop();
    }
}

#[test]
fn a_direct_copy_that_is_cancelled_ends_at_once_and_goes_on_later() {
    let test = "a_direct_copy_that_is_cancelled_ends_at_once_and_goes_on_later";
    let Some(hosts) = Hosts::managed(test, 64, "") else { return };
    hosts.fill(64);
    let mut copy = hosts.begin(&["--direct", "--cap", "1M"]);
    copy.signal(Signal::INT);
    let status = copy.wait(Duration::from_secs(60));
    assert!(!status.success() && copy.log().contains("--resume"), "{}", copy.log());
    let carried = hosts.third.carried_bytes();
    std::thread::sleep(Duration::from_secs(2));
    let since = hosts.third.carried_bytes() - carried;
    assert!(since < MIB as u64 / 4, "{since} bytes went after the end");
    assert!(!hosts.derived().contains("copy-"), "{}", hosts.derived());
    let ran = hosts.cp(&["--direct", "--resume"]);
    let resumed = told(&ran);
    assert!(ran.stderr.contains("going on at"), "{ran:?}");
    assert!(resumed["resumed_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{resumed}");
    hosts.expect_same();
    hosts.stop();
}

#[test]
fn who_manages_the_source_sees_how_far_a_direct_copy_is_and_ends_it() {
    let test = "who_manages_the_source_sees_how_far_a_direct_copy_is_and_ends_it";
    let Some(hosts) = Hosts::managed(test, 64, "") else { return };
    hosts.fill(64);
    // It takes a minute: each look takes seconds where there is much else to do.
    let mut copy = hosts.begin(&["--direct", "--cap", "1M"]);
    let manage =
        |arguments: &[&str]| run_ok(hosts.world.sanwire(&[&["manage", &hosts.near_url], arguments].concat()), TIMEOUT);
    let job = || -> serde_json::Value {
        let told: serde_json::Value = serde_json::from_str(&manage(&["jobs", "--json"])).expect("JSON");
        let jobs = told["jobs"].as_array().expect("jobs");
        jobs.iter().find(|job| job["copy"].is_object()).cloned().expect("the copy is one of them")
    };
    let done = || job()["copy"]["done_bytes"].as_u64().expect("a count");
    let before = done();
    wait_until("it goes on", TIMEOUT, || done() > before);
    let job = job();
    assert!(job["state"] == "running" && job["copy"]["total_bytes"] == 64_u64 << 20, "{job}");
    assert!(job["copy"]["way"].as_str().is_some_and(|way| way.starts_with("hs+ip://10.78.0.1")), "{job}");
    manage(&["cancel-job", &job["id"].to_string()]);
    // It goes on by no other way.
    assert!(!copy.wait(TIMEOUT).success() && copy.log().contains("--resume"), "{}", copy.log());
    assert!(!hosts.derived().contains("copy-"), "{}", hosts.derived());
    let resumed = told(&hosts.cp(&["--direct", "--resume"]));
    assert!(resumed["resumed_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{resumed}");
    hosts.expect_same();
    hosts.stop();
}

/// A session of a client that begins anew ends what former ones of it have copied from blocks to blocks; the server's own copy for it is none
/// of them. All are in one shard, and a piece is under way all the while.
#[test]
fn a_direct_copy_goes_on_beside_other_sessions_of_who_ordered_it() {
    let test = "a_direct_copy_goes_on_beside_other_sessions_of_who_ordered_it";
    let (near, far) = ((May::Manage, "shards = 1"), (May::Manage, ""));
    let Some(hosts) = Hosts::new(test, 16, ",delay=read:500ms", near, far) else { return };
    hosts.fill(16);
    let mut copy = hosts.spawn(&["--direct"]);
    let runs = || {
        let told = run_ok(hosts.world.sanwire(&["manage", &hosts.near_url, "jobs", "--json"]), TIMEOUT);
        let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
        let jobs = told["jobs"].as_array().expect("jobs");
        jobs.iter().any(|job| job["copy"].is_object() && job["state"] == "running")
    };
    wait_until("the copy runs", TIMEOUT, runs);
    assert!((0..5).all(|_| runs()), "{}", copy.log());
    assert!(copy.wait(TIMEOUT).success(), "{}", copy.log());
    hosts.expect_same();
    hosts.stop();
}

#[test]
fn a_direct_copy_outlives_a_restart_of_the_destination_and_resumes_after_its_death() {
    let test = "a_direct_copy_outlives_a_restart_of_the_destination_and_resumes_after_its_death";
    let Some(mut hosts) = Hosts::managed(test, 64, "") else { return };
    hosts.fill(64);
    let mut copy = hosts.begin(&["--direct", "--cap", "4M"]);
    hosts.far.kill();
    hosts.far.restart();
    assert!(copy.wait(TIMEOUT).success(), "{}", copy.log());
    hosts.expect_same();
    fs::write(hosts.path("disk.img"), pattern(9, 64 * MIB)).expect("other content");
    let mut copy = hosts.begin(&["--direct", "--overwrite", "--cap", "1M", "--wait", "15"]);
    hosts.far.kill();
    let status = copy.wait(TIMEOUT);
    assert!(!status.success() && copy.log().contains("has failed"), "{}", copy.log());
    hosts.far.restart();
    let ran = hosts.cp(&["--direct", "--resume", "--wait", "60"]);
    assert!(told(&ran)["resumed_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{ran:?}");
    hosts.expect_same();
    hosts.stop();
}

#[test]
fn a_direct_copy_resumes_after_the_death_of_the_source() {
    let test = "a_direct_copy_resumes_after_the_death_of_the_source";
    let Some(mut hosts) = Hosts::managed(test, 64, "") else { return };
    hosts.fill(64);
    let mut copy = hosts.begin(&["--direct", "--cap", "1M", "--wait", "15"]);
    hosts.near.kill();
    let status = copy.wait(TIMEOUT);
    assert!(!status.success(), "nobody copies any more: {}", copy.log());
    hosts.near.restart();
    let ran = hosts.cp(&["--direct", "--resume", "--wait", "60"]);
    assert!(told(&ran)["resumed_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{ran:?}");
    hosts.expect_same();
    assert!(!hosts.derived().contains("copy-"), "{}", hosts.derived());
    hosts.stop();
}

#[test]
fn a_direct_copy_outlives_an_outage_of_the_link_between_the_servers() {
    let test = "a_direct_copy_outlives_an_outage_of_the_link_between_the_servers";
    let Some(hosts) = Hosts::managed(test, 64, "") else { return };
    hosts.fill(64);
    let mut copy = hosts.begin(&["--direct", "--cap", "4M"]);
    hosts.third.set_link("down");
    std::thread::sleep(Duration::from_secs(5));
    assert!(copy.is_alive(), "{}", copy.log());
    hosts.third.set_link("up");
    assert!(copy.wait(TIMEOUT).success(), "{}", copy.log());
    hosts.expect_same();
    hosts.stop();
}

#[test]
fn what_is_revoked_in_the_middle_is_written_no_more() {
    let Some(hosts) = Hosts::managed("what_is_revoked_in_the_middle_is_written_no_more", 64, "") else { return };
    hosts.fill(64);
    let mut copy = hosts.begin(&["--direct", "--cap", "1M"]);
    let list = hosts.derived();
    let name = list.split_ascii_whitespace().find(|word| word.starts_with("copy-")).expect("the volume of the copy");
    let at = hosts.far_url.clone();
    // Whoever else may connect does not find it.
    let stranger = hosts.world.sanwire_of("stranger", &["info", &format!("{at}/{name}")]);
    assert_eq!(run(stranger, TIMEOUT).code, Some(1));
    run_ok(hosts.world.sanwire(&["dvd", "revoke", name, "--at", &at]), TIMEOUT);
    let written = fs::read(hosts.path("copy.img")).expect("the copy");
    let status = copy.wait(TIMEOUT);
    assert!(!status.success(), "{}", copy.log());
    assert!(written == fs::read(hosts.path("copy.img")).expect("the copy"), "it was written after it was revoked");
    hosts.stop();
}

#[test]
fn a_volume_that_is_written_meanwhile_is_copied_as_it_was_when_the_copy_began() {
    let test = "a_volume_that_is_written_meanwhile_is_copied_as_it_was_when_the_copy_began";
    let pool = "[[pool]]\nname = 'p'\ndirectory = 'SCRATCH/pool'\nsnapshots = 'layers'";
    let Some(hosts) = Hosts::new(test, 64, ",layers=p", (May::Manage, pool), (May::Manage, "")) else { return };
    let url = format!("{}/disk", hosts.near_url);
    let write = |seed: u64| {
        let image = hosts.world.scratch.text("content.raw");
        fs::write(&image, pattern(seed, 64 * MIB)).expect("content");
        run_ok(hosts.world.sanwire_of("writer", &["cp", "--overwrite", &image, &url]), TIMEOUT);
    };
    let snapshots = || run_ok(hosts.world.sanwire(&["manage", &hosts.near_url, "snapshots"]), TIMEOUT);
    write(1);
    let mut copy = hosts.begin(&["--direct", "--cap", "2M", "--verify"]);
    assert!(snapshots().contains("copy-"), "{}", snapshots());
    write(2);
    assert!(copy.is_alive(), "it was too fast: {}", copy.log());
    assert!(copy.wait(TIMEOUT).success(), "{}", copy.log());
    let copied = fs::read(hosts.path("copy.img")).expect("the copy");
    assert!(copied == pattern(1, 64 * MIB), "it is a mixture");
    assert!(!snapshots().contains("copy-"), "{}", snapshots());
    hosts.stop();
}

#[test]
fn data_goes_by_each_wire_whose_clients_have_keys() {
    let test = "data_goes_by_each_wire_whose_clients_have_keys";
    let manage = ((May::Manage, ""), (May::Manage, ""));
    for (scheme, wires) in [
        ("hs+eth", Wires::ip(Some("hs-eth:far0"))),
        ("hdsp", Wires::ip(Some("hdsp:far0"))),
        ("visa", Wires::visa()),
        ("visa", Wires::visa_alone()),
    ] {
        let Some(hosts) = Hosts::over(&wires, test, 32, "", manage) else { return };
        hosts.fill(24);
        let before = hosts.third.carried_bytes();
        let ran = hosts.cp(&["--direct", "--verify"]);
        let direct = told(&ran);
        let way = direct["way"].as_str().unwrap_or_default();
        assert!(way.starts_with(&format!("{scheme}://")), "{scheme}: {ran:?}");
        assert_eq!(direct["verified_bytes"], 32_u64 << 20, "{scheme}");
        assert!(hosts.third.carried_bytes() - before > 24 * MIB as u64, "{scheme}");
        hosts.expect_same();
        assert!(!hosts.derived().contains("copy-"), "{scheme}: {}", hosts.derived());
        hosts.stop();
    }
}

#[test]
fn a_copy_whose_cp_was_killed_is_ended_by_the_next_one() {
    let test = "a_copy_whose_cp_was_killed_is_ended_by_the_next_one";
    for way in ["--direct", "--no-direct"] {
        let Some(hosts) = Hosts::managed(test, 64, "") else { return };
        hosts.fill(64);
        fs::write(hosts.path("other.img"), pattern(9, 64 * MIB)).expect("the other source");
        let mut copy = hosts.begin(&["--direct", "--cap", "4M"]);
        copy.kill();
        let ran = hosts.cp_of("other", &[way, "--overwrite"]);
        assert_eq!(told(&ran)["direct"], way == "--direct", "{ran:?}");
        assert!(ran.stderr.contains("an earlier copy") && ran.stderr.contains("is ended"), "{way}: {ran:?}");
        hosts.expect_copy_of("other.img");
        // All of the first copy takes sixteen seconds.
        std::thread::sleep(Duration::from_secs(20));
        hosts.expect_copy_of("other.img");
        assert!(!hosts.derived().contains("copy-"), "{way}: {}", hosts.derived());
        hosts.stop();
    }
}

#[test]
fn a_copy_about_which_nobody_asks_ends_soon() {
    let Some(hosts) = Hosts::managed("a_copy_about_which_nobody_asks_ends_soon", 256, "") else { return };
    hosts.fill(256);
    let mut copy = hosts.begin(&["--direct", "--cap", "4M"]);
    copy.kill();
    // It may go on for half a minute, and the cap would let it go on for one more.
    std::thread::sleep(Duration::from_secs(40));
    let carried = hosts.third.carried_bytes();
    std::thread::sleep(Duration::from_secs(3));
    let since = hosts.third.carried_bytes() - carried;
    assert!(since < MIB as u64 / 4, "{since} bytes went after the end");
    hosts.stop();
}

#[test]
fn a_direct_copy_is_ended_in_order_before_it_has_begun() {
    let test = "a_direct_copy_is_ended_in_order_before_it_has_begun";
    let Some(hosts) = Hosts::managed(test, 8, "") else { return };
    hosts.fill(8);
    hosts.third.ignore_server(&hosts.world);
    let mut copy = hosts.spawn(&[]);
    wait_until("its volume is there", TIMEOUT, || hosts.derived().contains("copy-"));
    copy.signal(Signal::INT);
    let status = copy.wait(Duration::from_secs(60));
    assert!(!status.success(), "it does not go another way then: {}", copy.log());
    assert!(!hosts.derived().contains("copy-"), "{}", hosts.derived());
    assert!(fs::read(hosts.path("copy.img")).expect("the copy").iter().all(|byte| *byte == 0));
    hosts.stop();
}

#[test]
fn who_is_not_copied_for_directly_hears_why() {
    let off = (May::Manage, "direct-copies = 'off'");
    let Some(hosts) = Hosts::new("who_is_not_copied_for_directly_hears_why", 8, "", off, (May::Manage, "")) else {
        return;
    };
    hosts.fill(2);
    let ran = hosts.cp(&[]);
    assert_eq!(told(&ran)["direct"], false);
    assert!(ran.stderr.contains("passes this host") && ran.stderr.contains("direct-copies"), "{ran:?}");
    hosts.stop();
}
