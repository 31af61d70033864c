//! Snapshots of volumes whose stores are in no pool: on a file, a block device, an NBD export and another server, with layers in a pool.

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::harness::{Client, LoopDevice, Process, Scratch, Server, can_run, pattern, port, wait_until};
use crate::manage::{ctl, ctl_ok};

const TIMEOUT: Duration = Duration::from_secs(120);
const SIZE: usize = 24 << 20;

/// A server with a pool for layers, and a volume `db` over some store.
struct Served<'a> {
    scratch: &'a Scratch,
    server: Server,
    client: Client<'a>,
    socket: PathBuf,
    port: u16,
}

impl<'a> Served<'a> {
    fn new(scratch: &'a Scratch, volumes: &[&str]) -> Self {
        let (socket, pool, port) = (scratch.path("c.sock"), scratch.path("pool"), port());
        fs::create_dir_all(&pool).expect("a directory");
        let control = ["--control".to_owned(), socket.display().to_string()];
        let options = [&control[..], &["--pool".to_owned(), format!("p={}", pool.display())]].concat();
        let server = Server::start_on(scratch, &[&format!("hs-ip:127.0.0.1:{port}")], volumes, &options);
        wait_until("it serves", TIMEOUT, || ctl(&socket, &["status"]).code == Some(0));
        let client = Client::new(scratch, "client");
        Served { scratch, server, client, socket, port }
    }

    fn url(&self, volume: &str) -> String {
        format!("hs+ip://127.0.0.1:{}/{volume}", self.port)
    }

    /// Has a volume written from its beginning to its end; that goes on when this returns.
    fn begin_to_fill(&self, volume: &str, content: &[u8]) -> Process {
        let image = self.scratch.text("image.raw");
        fs::write(&image, content).expect("an image");
        let command = self.client.command(&["cp", "--overwrite", "--wait", "60", &image, &self.url(volume)]);
        Process::spawn("cp", command, self.scratch.path("cp.log"))
    }

    fn fill(&self, volume: &str, content: &[u8]) {
        let mut copy = self.begin_to_fill(volume, content);
        assert!(copy.wait(TIMEOUT).success(), "{}", copy.log());
    }

    fn content(&self, volume: &str) -> Vec<u8> {
        let copy = self.scratch.text("copy.raw");
        let _ = fs::remove_file(&copy);
        let told = self.client.run(&["cp", &self.url(volume), &copy]);
        assert_eq!(told.code, Some(0), "{told:?}");
        fs::read(&copy).expect("the copy")
    }

    fn of_snapshot(&self, snapshot: &str) -> Vec<u8> {
        ctl_ok(&self.socket, &["add-volume", &format!("old=pool:p/{snapshot},readonly")]);
        let content = self.content("old");
        ctl_ok(&self.socket, &["remove-volume", "old", "--force"]);
        content
    }

    /// Asks until nobody uses what it is about any more.
    fn ask(&self, arguments: &[&str]) {
        wait_until(&arguments.join(" "), TIMEOUT, || ctl(&self.socket, arguments).code == Some(0));
    }

    fn restart(&mut self) {
        self.server.restart();
        wait_until("it serves again", TIMEOUT, || ctl(&self.socket, &["status"]).code == Some(0));
    }
}

/// All that there is to snapshots, over this store; `below` reads what the store itself holds.
fn goes_through_all(store: &str, below: &dyn Fn() -> Vec<u8>) {
    let volume = format!("db={store},layers=p");
    let scratch = Scratch::new();
    let mut served = Served::new(&scratch, &[&volume]);
    let contents: Vec<Vec<u8>> = (1..=4).map(|seed| pattern(seed, SIZE)).collect();
    served.fill("db", &contents[0]);
    ctl_ok(&served.socket, &["snapshot", "db", "one"]);
    served.fill("db", &contents[1]);
    assert!(below() == contents[0], "{store} is written under a snapshot");
    // Killed while it is written, with a snapshot in between.
    let mut copy = served.begin_to_fill("db", &contents[2]);
    std::thread::sleep(Duration::from_millis(60));
    ctl_ok(&served.socket, &["snapshot", "db", "two"]);
    std::thread::sleep(Duration::from_millis(10));
    served.server.kill();
    served.restart();
    assert!(copy.wait(TIMEOUT).success(), "{}", copy.log());
    assert!(served.content("db") == contents[2], "{store}: what was written is not there");
    assert!(served.of_snapshot("db@one") == contents[0], "{store}: the snapshot is something else");
    let two = served.of_snapshot("db@two");
    let is_between = two.chunks(4096).enumerate().all(|(block, now)| {
        let of = |content: &Vec<u8>| content[block * 4096..][..now.len()] == *now;
        of(&contents[1]) || of(&contents[2])
    });
    assert!(is_between, "{store}: the snapshot holds what the volume never did");
    ctl_ok(&served.socket, &["clone", "db@one", "try"]);
    assert!(served.content("try") == contents[0], "{store}: the clone is something else");
    served.fill("try", &contents[3]);
    // The end of the copy may not have been told to the server that was killed.
    served.ask(&["rollback", "db@two", "--keep", "last", "--force"]);
    assert!(served.content("db") == two && served.of_snapshot("db@last") == contents[2]);
    assert!(below() == contents[0], "{store} is written under a snapshot");
    let told = ctl(&served.socket, &["delete-volume", "db", "--force"]);
    assert!(told.stderr.contains("has 3 snapshots"), "{told:?}");
    // Removed and added again, and killed while what nobody needs is merged.
    served.ask(&["remove-volume", "db", "--force"]);
    ctl_ok(&served.socket, &["add-volume", &volume]);
    served.ask(&["delete-volume", "try", "--snapshots", "--force"]);
    for snapshot in ["db@one", "db@last", "db@two"] {
        ctl_ok(&served.socket, &["delete-snapshot", snapshot]);
    }
    std::thread::sleep(Duration::from_millis(30));
    served.server.kill();
    served.restart();
    assert!(served.content("db") == two);
    wait_until("all is merged back", TIMEOUT, || below() == two);
    served.fill("db", &contents[3]);
    assert!(served.server.stop().success(), "{}", served.server.log());
    assert!(below() == contents[3], "{store} holds something else than the volume");
}

#[test]
fn a_file_outside_of_pools_has_snapshots() {
    let scratch = Scratch::new();
    let file = scratch.path("db.img");
    goes_through_all(&format!("file:{},size=24M", file.display()), &|| fs::read(&file).expect("the file"));
}

#[test]
fn a_block_device_has_snapshots_and_is_not_served_by_itself_meanwhile() {
    let name = "a_block_device_has_snapshots_and_is_not_served_by_itself_meanwhile";
    if !can_run(name, &["losetup"]) {
        return;
    }
    let scratch = Scratch::new();
    let device = LoopDevice::new(&scratch.path("device.img"), SIZE as u64);
    goes_through_all(&device.0, &|| fs::read(&device.0).expect("the device"));
    let mut served = Served::new(&scratch, &[&format!("db={},layers=p", device.0)]);
    served.fill("db", &pattern(7, SIZE));
    ctl_ok(&served.socket, &["snapshot", "db", "one"]);
    served.fill("db", &pattern(8, SIZE));
    let told = ctl(&served.socket, &["add-volume", &format!("other={}", device.0)]);
    assert!(told.stderr.contains("is served as volume db"), "{told:?}");
    assert!(ctl(&served.socket, &["add-volume", &format!("other={},layers=p", device.0)]).code != Some(0));
    served.ask(&["remove-volume", "db", "--force"]);
    let told = ctl(&served.socket, &["add-volume", &format!("db={}", device.0)]);
    assert!(told.stderr.contains("is below the layers of volume db in pool p"), "{told:?}");
    // Somebody makes a file system there meanwhile.
    assert!(served.server.stop().success(), "{}", served.server.log());
    let before = fs::read(&device.0).expect("the device");
    fs::write(&device.0, pattern(9, 1 << 20)).expect("it can be written");
    let mut served = Served::new(&scratch, &[]);
    let told = ctl(&served.socket, &["add-volume", &format!("db={},layers=p", device.0)]);
    assert!(told.stderr.contains("was written to by somebody else"), "{told:?}");
    fs::write(&device.0, before).expect("it can be written");
    ctl_ok(&served.socket, &["add-volume", &format!("db={},layers=p", device.0)]);
    assert!(served.content("db") == pattern(8, SIZE) && served.of_snapshot("db@one") == pattern(7, SIZE));
    assert!(served.server.stop().success(), "{}", served.server.log());
}

#[test]
fn a_volume_of_another_server_has_snapshots_here() {
    let scratch = Scratch::new();
    let (file, port) = (scratch.path("disk.img"), port());
    let mut behind = Server::start_here(&scratch, port, &[&format!("disk=file:{},size=24M", file.display())]);
    goes_through_all(&format!("hs+ip://127.0.0.1:{port}/disk"), &|| fs::read(&file).expect("the file"));
    assert!(behind.stop().success(), "{}", behind.log());
}

#[test]
fn an_nbd_export_has_snapshots_and_clones_of_it_wait_for_its_server() {
    let name = "an_nbd_export_has_snapshots_and_clones_of_it_wait_for_its_server";
    if !can_run(name, &["qemu-nbd"]) {
        return;
    }
    let scratch = Scratch::new();
    let (image, socket) = (scratch.path("image"), scratch.path("nbd.sock"));
    File::create(&image).and_then(|file| file.set_len(SIZE as u64)).expect("an image");
    let start = || {
        let _ = fs::remove_file(&socket);
        let mut command = Command::new("qemu-nbd");
        command.args(["-t", "-f", "raw", "--shared=8", "--discard=unmap", "-k"]).arg(&socket).arg(&image);
        let process = Process::spawn("qemu-nbd", command, scratch.path("nbd.log"));
        wait_until("qemu-nbd listens", TIMEOUT, || UnixStream::connect(&socket).is_ok());
        process
    };
    let mut nbd = start();
    let store = format!("nbd:{}", socket.display());
    goes_through_all(&store, &|| fs::read(&image).expect("the image"));
    // A golden image, and what is made of it.
    let golden = format!("golden={store},readonly,when-gone=wait:60s,layers=p");
    let before = fs::read(&image).expect("the image");
    let own = Scratch::new();
    let mut served = Served::new(&own, &[&golden]);
    ctl_ok(&served.socket, &["snapshot", "golden", "v1"]);
    ctl_ok(&served.socket, &["clone", "golden@v1", "one"]);
    served.fill("one", &pattern(5, SIZE));
    assert!(served.server.stop().success(), "{}", served.server.log());
    nbd.kill();
    served.restart();
    let status = ctl_ok(&served.socket, &["status"]);
    assert!(status.contains("golden") && status.contains("one"), "{status}");
    nbd = start();
    wait_until("both are served", TIMEOUT, || ctl(&served.socket, &["resize-volume", "one", "24M"]).code == Some(0));
    wait_until("both are served", TIMEOUT, || ctl(&served.socket, &["snapshot", "golden", "v2"]).code == Some(0));
    assert!(served.content("one") == pattern(5, SIZE) && served.content("golden") == before);
    assert!(fs::read(&image).expect("the image") == before, "what is readonly is written");
    assert!(served.server.stop().success(), "{}", served.server.log());
    nbd.kill();
}
