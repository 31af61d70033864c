//! What a client asks of its connection on the command line.

use std::fs;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Client, Ran, Scratch, Server, port, run};

const PATIENCE: Duration = Duration::from_secs(60);
const CAP_BYTES_PER_SECOND: f64 = (2 << 20) as f64;

#[track_caller]
fn json(ran: &Ran) -> Value {
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    serde_json::from_str(&ran.stdout).expect("JSON")
}

#[test]
fn a_client_asks_for_compression_and_a_cap_and_has_them() {
    let scratch = Scratch::new();
    let port = port();
    let url = format!("hs+ip://127.0.0.1:{port}/disk0");
    let (wire, options) = (format!("hs-ip:127.0.0.1:{port}"), ["--compression", "allowed"].map(str::to_owned));
    let mut server = Server::start_on(&scratch, &[&wire], &["disk0=ram:16M"], &options);
    let alice = Client::new(&scratch, "alice");

    let info = json(&alice.run(&["info", "--json", &url]));
    assert!(info["compression"] == false && info["cap_bytes_per_second"].is_null(), "{info}");
    let info = json(&alice.run(&["info", "--json", "--compression", "required", "--cap", "2M", &url]));
    assert!(
        info["compression"] == true && info["cap_bytes_per_second"].as_f64() == Some(CAP_BYTES_PER_SECOND),
        "{info}"
    );

    let (image, back) = (scratch.text("image"), scratch.text("back"));
    let text = b"all work and no play makes a dull disk. ".iter().copied().cycle().take(16 << 20);
    fs::write(&image, text.collect::<Vec<u8>>()).expect("an image");
    for (from, to) in [(&image, &url), (&url, &back)] {
        let copied = run(alice.command(&["cp", "--compression", "required", from, to]), PATIENCE);
        assert_eq!(copied.code, Some(0), "{}", copied.stderr);
    }
    assert!(fs::read(&image).expect("the image") == fs::read(&back).expect("the copy"), "the copy differs");

    let bench = ["bench", "--json", "--block", "64K", "--depth", "8", "--time", "3", "--cap", "2M", &url];
    let rate = json(&run(alice.command(&bench), PATIENCE))["bytes_per_second"].as_f64().expect("a rate");
    assert!(rate > 0.0 && rate < 1.5 * CAP_BYTES_PER_SECOND, "{rate} bytes in a second");
    assert!(server.stop().success(), "{}", server.log());
}
