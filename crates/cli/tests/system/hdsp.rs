//! HDSP: our server and our client, between two hosts.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::harness::{Attached, Filesystem, Process, Server, World, pattern, run, run_ok, wait_until};

const TIMEOUT: Duration = Duration::from_secs(120);

const CONTENT_BYTES: usize = 3 << 20;

/// Serves these volumes by HDSP, to everybody unless options say otherwise.
fn serve(world: &World, volumes: &[&str], options: &[&str]) -> Server {
    let wire = format!("hdsp:{}", world.interface());
    let allow: &[&str] = if options.contains(&"--allow") { &[] } else { &["--allow", "any"] };
    Server::start_with(world, volumes, &[&["--wire", &wire], allow, options].concat())
}

/// What `sanwire` says to this.
#[track_caller]
fn sanwire(world: &World, arguments: &[&str]) -> String {
    run_ok(world.sanwire(arguments), TIMEOUT)
}

fn url(world: &World, volume: &str) -> String {
    format!("hdsp://{}/box/{volume}", world.interface())
}

/// Copies content to a volume and back, and compares.
fn copy_and_compare(world: &World, volume: &str, seed: u64, options: &[&str]) {
    let (image, back) = (world.scratch.path("image"), world.scratch.path("back"));
    let content = pattern(seed, CONTENT_BYTES);
    fs::write(&image, &content).expect("an image");
    drop(fs::remove_file(&back));
    sanwire(world, &[&["cp", "--overwrite", &image.display().to_string(), &url(world, volume)], options].concat());
    sanwire(world, &[&["cp", &url(world, volume), &back.display().to_string()], options].concat());
    let read = fs::read(&back).expect("a copy");
    assert!(read[..CONTENT_BYTES] == content, "what was read is what was written");
}

#[test]
fn hdsp_volumes_are_found_copied_to_and_read() {
    let test = "hdsp_volumes_are_found_copied_to_and_read";
    for (mtu, packet) in [(1500, "1500"), (9000, "9000")] {
        let Some(world) = World::new(test, mtu, &[]) else { return };
        let store = world.scratch.path("disk.img");
        let disk = format!("disk=file:{},size=16M,disk-address=7", store.display());
        let mut server = serve(&world, &[&disk, "large=ram:4M,block=4096", "secret=ram:8M,security=aes-128-gcm"], &[]);
        let everywhere = format!("hdsp://{}", world.interface());
        for place in [&everywhere, &format!("{everywhere}/box")] {
            // Who looks around waits a second for answers, and a busy host may take longer.
            let has_all =
                |listed: &str| ["disk", "large", "secret"].iter().all(|name| listed.contains(&url(&world, name)));
            wait_until("all volumes are listed", TIMEOUT, || {
                has_all(&run(world.sanwire(&["ls", place]), TIMEOUT).stdout)
            });
        }
        let found = sanwire(&world, &["discover", &everywhere, "--wide", "--time", "10"]);
        assert!(found.contains("HDSP") && found.contains("16 MiB"), "{found}");
        let told = sanwire(&world, &["info", "hdsp:///box/@7"]);
        assert!(told.contains("packets come      by AF_PACKET"), "{told}");
        assert!(told.contains(&format!("packets of up to {packet} bytes")) && told.contains("16 MiB"), "{told}");
        copy_and_compare(&world, "disk", 1, &[]);
        let stored = fs::read(&store).expect("the store");
        assert!(stored[..CONTENT_BYTES] == pattern(1, CONTENT_BYTES), "a copy is flushed");
        for (seed, disk_type) in [(2, "ata"), (3, "sata"), (4, "scsi")] {
            copy_and_compare(&world, "disk", seed, &["--disk-type", disk_type]);
        }
        copy_and_compare(&world, "large", 5, &[]);
        copy_and_compare(&world, "secret", 6, &[]);
        sanwire(&world, &["cp", "--overwrite", "--verify", &url(&world, "secret"), &url(&world, "disk")]);
        let stored = fs::read(&store).expect("the store");
        assert!(stored[..CONTENT_BYTES] == pattern(6, CONTENT_BYTES), "from one volume of a server to another");
        let told = sanwire(&world, &["info", &url(&world, "secret")]);
        assert!(told.contains("aes-128-gcm"), "{told}");
        let refused = run(world.sanwire(&["info", &url(&world, "large"), "--disk-type", "ata"]), TIMEOUT);
        assert!(refused.stderr.contains("does not take commands of this type"), "{}", refused.stderr);
        let refused = run(world.sanwire(&["info", &url(&world, "absent")]), TIMEOUT);
        assert!(refused.stderr.contains("no such volume for this client"), "{}", refused.stderr);
        assert!(server.stop().success(), "{}", server.log());
    }
}

#[test]
fn several_shards_each_have_their_hdsp_sessions() {
    let Some(world) = World::new("several_shards_each_have_their_hdsp_sessions", 1500, &[]) else { return };
    let mut server = serve(&world, &["disk=ram:16M"], &["--shards", "3"]);
    // Each of these is a session of its own, in whatever shard its port leads to.
    for seed in 0..6 {
        copy_and_compare(&world, "disk", seed, &[]);
    }
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn frames_are_lost_and_an_hdsp_server_killed_without_an_error() {
    let test = "frames_are_lost_and_an_hdsp_server_killed_without_an_error";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let store = world.scratch.path("disk.img");
    let mut server = serve(&world, &[&format!("disk=file:{},size=64M", store.display())], &[]);
    world.lose(5);
    for disk_type in ["scsi", "sata"] {
        copy_and_compare(&world, "disk", 2, &["--disk-type", disk_type]);
    }
    let lost = world.lose_nothing();
    assert!(lost.iter().all(|lost| *lost > 20), "{lost:?} frames were lost");
    let image = world.scratch.path("image");
    let content = pattern(3, 16 << 20);
    fs::write(&image, &content).expect("an image");
    for disk_type in ["scsi", "sata"] {
        let arguments = ["cp", "--overwrite", "--wait", "60", "--disk-type", disk_type];
        let (image, url) = (image.display().to_string(), url(&world, "disk"));
        let before = server.log().matches("connected over HDSP").count();
        let copying = thread::scope(|scope| {
            let copying = scope.spawn(|| run(world.sanwire(&[&arguments[..], &[&image, &url]].concat()), TIMEOUT));
            wait_until("the copy goes on", TIMEOUT, || server.log().matches("connected over HDSP").count() > before);
            thread::sleep(Duration::from_millis(50));
            server.kill();
            thread::sleep(Duration::from_millis(500));
            server.restart();
            copying.join().expect("a copy")
        });
        // A copy that was over before has not waited for the server.
        wait_until("the server is back", TIMEOUT, || {
            run(world.sanwire(&["info", "--wait", "60", &url]), TIMEOUT).code == Some(0)
        });
        assert_eq!(copying.code, Some(0), "{disk_type}: {copying:?}");
        let stored = fs::read(&store).expect("the store");
        assert!(stored[..content.len()] == content, "{disk_type}");
    }
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn an_hdsp_link_is_cut_and_comes_back() {
    let Some(world) = World::new("an_hdsp_link_is_cut_and_comes_back", 1500, &[]) else { return };
    let store = world.scratch.path("disk.img");
    let mut server = serve(&world, &[&format!("disk=file:{},size=64M", store.display())], &[]);
    let image = world.scratch.path("image");
    let content = pattern(4, 32 << 20);
    fs::write(&image, &content).expect("an image");
    let (image, url) = (image.display().to_string(), url(&world, "disk"));
    let copying = thread::scope(|scope| {
        let copy = || run(world.sanwire(&["cp", "--overwrite", "--wait", "60", &image, &url]), TIMEOUT);
        let copying = scope.spawn(copy);
        wait_until("the copy goes on", TIMEOUT, || server.log().contains("connected over HDSP"));
        thread::sleep(Duration::from_millis(50));
        world.cut_link();
        thread::sleep(Duration::from_secs(3));
        world.restore_link();
        copying.join().expect("a copy")
    });
    assert_eq!(copying.code, Some(0), "{copying:?}");
    assert!(fs::read(&store).expect("the store")[..content.len()] == content);
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn who_is_not_allowed_or_lacks_the_password_has_no_hdsp_volume() {
    let test = "who_is_not_allowed_or_lacks_the_password_has_no_hdsp_volume";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let mut server = serve(&world, &["disk=ram:8M"], &["--allow", "02:00:5e:77:00:99"]);
    let ran = run(world.sanwire(&["info", &url(&world, "disk"), "--wait", "1"]), TIMEOUT);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("no HDSP server answered"), "{}", ran.stderr);
    wait_until("the server tells who asks", TIMEOUT, || server.log().contains("asks and is not allowed"));
    assert!(server.stop().success(), "{}", server.log());

    let [right, wrong] = ["right", "wrong"].map(|password| {
        let file = world.scratch.path(password);
        fs::write(&file, format!("{password} enough\n")).expect("a password");
        let mut chmod = Command::new("chmod");
        chmod.arg("600").arg(&file);
        run_ok(chmod, TIMEOUT);
        file.display().to_string()
    });
    let mut server = serve(&world, &["disk=ram:8M"], &["--password-file", &right]);
    let info = |options: &[&str]| run(world.sanwire(&[&["info", &url(&world, "disk")], options].concat()), TIMEOUT);
    let told = info(&["--password-file", &wrong]);
    assert!(told.code == Some(1) && told.stderr.contains("the passwords differ"), "{}", told.stderr);
    let told = info(&[]);
    assert!(told.code == Some(1) && told.stderr.contains("the server requires a password"), "{}", told.stderr);
    let told = "it does not know the password";
    wait_until("the server tells who guesses", TIMEOUT, || server.log().contains(told));
    // Whose password was wrong waits a moment.
    wait_until("the right password is taken", TIMEOUT, || info(&["--password-file", &right]).code == Some(0));
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn an_hdsp_server_with_another_key_than_the_pinned_one_is_told_with_both() {
    let test = "an_hdsp_server_with_another_key_than_the_pinned_one_is_told_with_both";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let mut server = serve(&world, &["disk=ram:8M"], &["--allow", "any"]);
    let url = format!("hdsp://{}/box", world.interface());
    let key_file = world.state("server").join("sanwire/server.key");
    let key = || {
        let shown = sanwire(&world, &["key", "show", &key_file.display().to_string()]);
        shown.lines().find_map(|line| line.strip_prefix("public key")).expect("a key").trim().to_owned()
    };
    sanwire(&world, &["key", "pin", &url]);
    assert!(sanwire(&world, &["ls", &url]).contains("disk"));
    let pinned = key();
    assert!(server.stop().success(), "{}", server.log());
    fs::remove_file(&key_file).expect("the server's key");
    server.restart();
    wait_until("it has a new key", TIMEOUT, || key_file.exists());
    let told = run(world.sanwire(&["ls", &url]), TIMEOUT);
    let changed = format!("SERVER KEY CHANGED: pinned {pinned}, received {}.", key());
    let advice = format!("`sanwire key pin {url} --key KEY --replace`");
    assert!(told.code == Some(1) && told.stderr.contains(&changed) && told.stderr.contains(&advice), "{told:?}");
    sanwire(&world, &["key", "pin", &url, "--key", &key(), "--replace"]);
    assert!(sanwire(&world, &["ls", &url]).contains("disk"));
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn an_hdsp_volume_is_attached_shown_and_dropped() {
    let test = "an_hdsp_volume_is_attached_shown_and_dropped";
    let tools = [&Filesystem::TOOLS[..], &["fusermount3"]].concat();
    let Some(world) = World::new(test, 9000, &tools) else { return };
    let socket = world.scratch.text("control");
    let store = world.scratch.text("ext4.img");
    let volume = format!("ext4=file:{store},size=64M");
    let mut server = serve(&world, &[&volume], &["--control", &socket]);
    let ctl = |arguments: &[&str]| sanwire(&world, &[&["ctl", "--socket", &socket], arguments].concat());
    let attached = Attached::device(&world, &url(&world, "ext4"));
    let sessions = ctl(&["sessions"]);
    assert!(sessions.contains("hdsp") && sessions.contains("ext4"), "{sessions}");
    Filesystem::Ext4.make(&attached.place);
    let metrics = ctl(&["metrics"]);
    for sample in ["sanwire_hdsp_handshakes_total{result=\"established\"}", "wire=\"hdsp:lan0\""] {
        assert!(metrics.contains(sample), "{sample}: {metrics}");
    }
    // A dropped client comes again, and goes on.
    let id = client_id(&world);
    ctl(&["drop-client", &id]);
    wait_until("the client is there again", TIMEOUT, || ctl(&["sessions"]).contains("hdsp"));
    Filesystem::Ext4.check(&attached.place);
    attached.detach(&world);
    let attached = Attached::device(&world, &url(&world, "ext4"));
    Filesystem::Ext4.check(&attached.place);
    attached.detach(&world);
    assert!(server.stop().success(), "{}", server.log());
}

/// The values of what `sanwire ctl metrics` says by names that begin so and have these labels.
fn samples(metrics: &str, name: &str, labels: &str) -> Vec<u64> {
    let of_name = metrics.lines().filter(|line| line.starts_with(name) && line.contains(labels));
    let values = of_name.filter_map(|line| line.split_whitespace().last());
    values.map(|value| value.parse().unwrap_or_else(|_| panic!("{name}: {metrics}"))).collect()
}

/// Many programs write to a slow disk more than a server has memory for.
#[test]
fn hdsp_clients_send_less_while_their_server_is_short_of_memory() {
    let test = "hdsp_clients_send_less_while_their_server_is_short_of_memory";
    let Some(world) = World::new(test, 9000, &[]) else { return };
    let socket = world.scratch.text("control");
    // All sessions of a client are in one shard, and each shard has a part of the memory.
    let options = ["--shards", "3", "--control", &socket];
    let mut server = serve(&world, &["disk=ram:64M,delay=write:100ms"], &options);
    let metrics = || sanwire(&world, &["ctl", "--socket", &socket, "metrics"]);
    let writer = |name: &str, seconds: &str| {
        let volume = url(&world, "disk");
        let load = ["bench", &volume, "--reads", "0", "--overwrite", "--block", "256K", "--depth", "16"];
        let command = world.sanwire(&[&load[..], &["--time", seconds]].concat());
        Process::spawn(name, command, world.scratch.path(&format!("{name}.log")))
    };
    let windows = || samples(&metrics(), "sanwire_session_window_packets{", "direction=\"in\"");
    let changes = |to: &str| samples(&metrics(), "sanwire_hdsp_window_changes_total{", &format!("to=\"{to}\""));
    let long = writer("long", "3600");
    wait_until("the first one writes", TIMEOUT, || windows().len() == 1);
    let agreed = windows()[0];
    assert_eq!(changes("smaller"), [0], "there is memory for one");
    let others: Vec<Process> = (0..11).map(|number| writer(&format!("writer-{number}"), "20")).collect();
    wait_until("clients are told to send less", TIMEOUT, || {
        changes("smaller")[0] > 5 && windows().iter().any(|window| *window < agreed)
    });
    // They go on until their time is over, and then there is memory again.
    for mut other in others {
        assert!(other.wait(TIMEOUT).success(), "{}", other.log());
    }
    wait_until("the first one may send as much as ever", TIMEOUT, || windows() == [agreed]);
    assert!(changes("larger")[0] > 0);
    drop(long);
    assert!(server.stop().success(), "{}", server.log());
}

/// The kernel copies what is sent, and the server only what it guards.
#[test]
fn what_hdsp_reads_is_sent_from_where_it_was_unless_it_is_sealed() {
    let test = "what_hdsp_reads_is_sent_from_where_it_was_unless_it_is_sealed";
    let Some(world) = World::new(test, 9000, &[]) else { return };
    let socket = world.scratch.text("control");
    let volumes = ["plain=ram:8M,security=none", "secret=ram:8M,security=aes-128-gcm"];
    let mut server = serve(&world, &volumes, &["--control", &socket]);
    let read = |memory: &str| {
        let metrics = sanwire(&world, &["ctl", "--socket", &socket, "metrics"]);
        samples(&metrics, "sanwire_hdsp_read_bytes_total{", &format!("memory=\"{memory}\"")).iter().sum::<u64>()
    };
    let content = CONTENT_BYTES as u64;
    for (volume, seed) in [("plain", 1), ("secret", 2)] {
        let before = [read("where they were"), read("copied")];
        copy_and_compare(&world, volume, seed, &[]);
        let [in_place, copied] = [read("where they were") - before[0], read("copied") - before[1]];
        let (most, least) = if volume == "plain" { (in_place, copied) } else { (copied, in_place) };
        assert!(most >= content && least < content / 10, "{volume}: {in_place} and {copied}");
    }
    assert!(server.stop().success(), "{}", server.log());
}

fn client_id(world: &World) -> String {
    sanwire(world, &["id"]).trim().to_owned()
}

#[test]
fn hdsp_addresses_that_were_chosen_are_kept_over_restarts() {
    let test = "hdsp_addresses_that_were_chosen_are_kept_over_restarts";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let mut server = serve(&world, &["first=ram:4M", "second=ram:5M", "said=ram:6M,disk-address=2"], &[]);
    assert!(sanwire(&world, &["info", &url(&world, "@1")]).contains("5 MiB"));
    assert!(server.stop().success(), "{}", server.log());
    // Their numbers are others now, and a new one takes no address that was somebody's.
    let mut server = serve(&world, &["second=ram:5M", "new=ram:7M", "first=ram:4M"], &[]);
    for (address, size) in [("@0", "4 MiB"), ("@1", "5 MiB"), ("@2", "7 MiB")] {
        let told = sanwire(&world, &["info", &url(&world, address)]);
        assert!(told.contains(size), "{address}: {told}");
    }
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn wireshark_reads_hdsp() {
    let test = "wireshark_reads_hdsp";
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/wireshark/sanwire-hdsp.lua");
    let Some(world) = World::new(test, 1500, &["tcpdump", "tshark"]) else { return };
    let mut server = serve(&world, &["disk=ram:8M"], &[]);
    let file = world.scratch.path("hdsp.pcap");
    let mut command = world.on_client("tcpdump");
    command.args(["-i", world.interface(), "-U", "-w"]).arg(&file).arg("ether proto 0x6666");
    let mut tcpdump = Process::spawn("tcpdump", command, world.scratch.path("tcpdump.log"));
    tcpdump.wait_for("listening on", TIMEOUT);
    copy_and_compare(&world, "disk", 4, &[]);
    copy_and_compare(&world, "disk", 5, &["--disk-type", "sata"]);
    tcpdump.signal(Signal::INT);
    tcpdump.wait(TIMEOUT);
    let mut tshark = Command::new("tshark");
    tshark.arg("-X").arg(format!("lua_script:{}", script.display())).arg("-r").arg(&file).args(["-T", "fields"]);
    for field in ["hdsp.version", "_ws.malformed", "_ws.lua.error"] {
        tshark.args(["-e", field]);
    }
    let read = run_ok(tshark, TIMEOUT);
    let packets: Vec<Vec<&str>> = read.lines().map(|line| line.split('\t').collect()).collect();
    assert!(packets.len() > 4 * CONTENT_BYTES / 1024, "{} packets", packets.len());
    let is_well = |packet: &Vec<&str>| !packet[0].is_empty() && packet[1].is_empty() && packet[2].is_empty();
    assert!(packets.iter().all(is_well), "{:?}", packets.iter().find(|packet| !is_well(packet)));
    assert!(server.stop().success(), "{}", server.log());
}
