//! AF_XDP in zero-copy mode: the server is in the guest, whose card has a driver with that mode, and the client is on the host.

use std::fs;
use std::process::Command;

use super::{LIMIT, is_long};
use crate::harness::{GUEST_LINKS, Guest, World, pattern, run_ok};

const MIB: usize = 16;
/// Packets of this MTU are longer than a page.
const JUMBO: &str = "9000";

/// What the job says at the end.
struct Outcome {
    kept_bytes: usize,
    copied_bytes: usize,
    /// Of the whole volume.
    sum: String,
}

impl Outcome {
    fn of(said: &str) -> Outcome {
        let words: Vec<&str> = said.lines().last().unwrap_or_default().split(' ').collect();
        let &[kept, copied, sum] = words.as_slice() else { panic!("{said}") };
        let bytes = |word: &str| word.parse().unwrap_or_else(|_| panic!("{said}"));
        Outcome { kept_bytes: bytes(kept), copied_bytes: bytes(copied), sum: sum.to_owned() }
    }
}

/// Without `path=`: such a card is what the server then looks for. It is killed, so that the next one finds the card as that has left it; of
/// that one the MTU grows.
#[test]
#[ignore = "boots a Linux guest"]
fn a_card_puts_what_writes_bring_into_memory_from_which_it_goes_to_the_disk() {
    let test = "a_card_puts_what_writes_bring_into_memory_from_which_it_goes_to_the_disk";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let Some(mut guest) = Guest::boot_with_new_kernel(&world, test) else { return };
    let [_, link] = GUEST_LINKS;
    let url = format!("hdsp://{}/guest/disk", link.interface);
    let sanwire = |arguments: &[&str]| {
        let mut sanwire = world.on_server(env!("CARGO_BIN_EXE_sanwire"));
        let state = world.state("client");
        sanwire.args(arguments).env("XDG_STATE_HOME", &state).env("XDG_CONFIG_HOME", &state);
        run_ok(sanwire, LIMIT)
    };
    let [image, back] = ["image", "back"].map(|name| world.scratch.path(name));
    let (image_text, back_text) = (world.scratch.text("image"), world.scratch.text("back"));
    let read_back = |when: &str, content: &[u8]| {
        sanwire(&["cp", &url, &back_text]);
        assert!(fs::read(&back).expect("a copy") == content, "{when}: other data came back");
        fs::remove_file(&back).expect("it goes");
    };
    for (round, signal) in (0..).zip(["KILL", "TERM"]) {
        let content = pattern(round, MIB << 20);
        fs::write(&image, &content).expect("an image");
        let mut sum = Command::new("b2sum");
        sum.arg(&image);
        let sum = run_ok(sum, LIMIT);
        let name = format!("disk{round}");
        let mib = MIB.to_string();
        // Whether all packets find room depends on the processor time that the guest gets: only the long form judges it.
        let strict = if is_long() { &["strict"][..] } else { &[] };
        guest.run("zero-copy", &[&["serve", &name, "eth1", &mib, link.server], strict].concat(), LIMIT);
        sanwire(&["cp", "--overwrite", &image_text, &url]);
        read_back(&format!("round {round}"), &content);
        if signal == "TERM" {
            let mut ip = world.on_server("ip");
            ip.args(["link", "set", link.interface, "mtu", JUMBO]);
            run_ok(ip, LIMIT);
            guest.run("zero-copy", &["lengthen", "eth1", JUMBO, link.server], LIMIT);
            read_back("by jumbo frames", &content);
        }
        let outcome = Outcome::of(&guest.run("zero-copy", &["end", &name, signal, link.server], LIMIT));
        assert!(sum.starts_with(&outcome.sum), "round {round}: the disk has other data");
        let Outcome { kept_bytes, copied_bytes, .. } = outcome;
        let is_all = kept_bytes + copied_bytes == MIB << 20;
        assert!(is_all && kept_bytes > (MIB << 20) * 9 / 10, "round {round}: {kept_bytes} + {copied_bytes}");
    }
}
