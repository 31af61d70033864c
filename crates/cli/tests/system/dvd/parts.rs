//! Each has a part of one disk: stations of AoE, and keys.

use std::fs;

use super::{MIB, TIMEOUT, serve, urls};
use crate::harness::{Server, World, pattern, run, run_ok};

/// Another interface, by which the client has another address.
const OTHER: &str = "lan1";

#[test]
fn an_aoe_target_is_there_for_the_station_that_is_a_principal() {
    let test = "an_aoe_target_is_there_for_the_station_that_is_a_principal";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    world.add_path(1, 1500);
    let (here, there) = (world.client_mac(), world.client_path_mac(1));
    let store = world.scratch.path("disk.img");
    let part = |name: &str, region: &str, who: &str, slot: u8| {
        format!("{name}=dvd:disk,region={region},principal={who},shelf=7,slot={slot}")
    };
    let volumes = [
        format!("disk=file:{},size=16M,shelf=1,slot=1", store.display()),
        part("one", "4M+2M,region=1M+1M", &format!("claimed:{here}"), 3),
        part("two", "8M+1M", &format!("claimed:{there}"), 4),
        part("open", "10M+1M", "any", 5),
    ];
    let volumes = volumes.each_ref().map(String::as_str);
    let wires = [world.interface(), OTHER].map(|interface| format!("aoe:{interface}"));
    let options = ["--wire", &wires[0], "--wire", &wires[1], "--allow", "any"];
    let mut server = Server::start_alone(&world, &volumes, &options);
    let image = world.scratch.path("image");
    let (mut expected, mut seed) = (vec![0; 16 * MIB], 0);
    for (interface, own, others) in [(world.interface(), "7.3", "7.4"), (OTHER, "7.4", "7.3")] {
        let listed = run_ok(world.sanwire(&["ls", &format!("aoe://{interface}")]), TIMEOUT);
        let is_listed = |address: &str| listed.contains(&format!("/{address}"));
        assert!(is_listed(own) && is_listed("7.5") && is_listed("1.1") && !is_listed(others), "{interface}: {listed}");
        let no_answer = run(world.sanwire(&["info", &format!("aoe://{interface}/{others}"), "--wait", "1"]), TIMEOUT);
        assert_eq!(no_answer.code, Some(1), "{interface}: {}", no_answer.stdout);
        for address in [own, "7.5"] {
            seed += 1;
            let bytes = if address == "7.3" { 3 * MIB } else { MIB };
            let content = pattern(seed, bytes);
            fs::write(&image, &content).expect("an image");
            let url = format!("aoe://{interface}/{address}");
            run_ok(world.sanwire(&["cp", "--overwrite", &image.display().to_string(), &url]), TIMEOUT);
            match address {
                "7.3" => {
                    expected[4 * MIB..6 * MIB].copy_from_slice(&content[..2 * MIB]);
                    expected[MIB..2 * MIB].copy_from_slice(&content[2 * MIB..]);
                }
                "7.4" => expected[8 * MIB..9 * MIB].copy_from_slice(&content),
                _ => expected[10 * MIB..11 * MIB].copy_from_slice(&content),
            }
            assert!(fs::read(&store).expect("the store") == expected, "{url}: its regions, and nothing else");
        }
    }
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn each_of_two_keys_has_its_own_part_of_one_disk_on_each_wire_that_knows_keys() {
    let test = "each_of_two_keys_has_its_own_part_of_one_disk_on_each_wire_that_knows_keys";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let store = world.scratch.path("disk.img");
    let ids = ["alice", "bob"].map(|who| run_ok(world.sanwire_of(who, &["id"]), TIMEOUT).trim().to_owned());
    let volumes = [
        format!("disk=file:{},size=8M", store.display()),
        format!("alices=dvd:disk,region=2M+1M,principal=key:{}", ids[0]),
        format!("bobs=dvd:disk,region=3M+1M,principal=key:{}", ids[1]),
    ];
    let mut server = serve(&world, &volumes.each_ref().map(String::as_str), &[]);
    let (image, mut expected) = (world.scratch.path("image"), vec![0; 8 * MIB]);
    let write = |who: &str, url: &str| {
        run(world.sanwire_of(who, &["cp", "--overwrite", &image.display().to_string(), url]), TIMEOUT)
    };
    let knows_keys = |wire: &str| !matches!(wire, "iscsi" | "iser");
    for (number, (wire, _)) in (0..).zip(urls(&world, "disk")).filter(|(_, (wire, _))| knows_keys(wire)) {
        for (at, who, other, volume) in [(2 * MIB, "alice", "bob", "alices"), (3 * MIB, "bob", "alice", "bobs")] {
            let (_, url) = urls(&world, volume).into_iter().find(|(found, _)| *found == wire).expect("its URL");
            let content = pattern(number * 2 + (at / MIB) as u64, MIB);
            fs::write(&image, &content).expect("an image");
            let refused = write(other, &url);
            assert_eq!(refused.code, Some(1), "{wire}: {other} writes to {volume}: {}", refused.stdout);
            assert!(fs::read(&store).expect("the store") == expected, "{wire}: {other} has changed what is {who}'s");
            let written = write(who, &url);
            assert_eq!(written.code, Some(0), "{wire}: {}", written.stderr);
            expected[at..at + MIB].copy_from_slice(&content);
            assert!(fs::read(&store).expect("the store") == expected, "{wire}: {who} writes to that part alone");
        }
    }
    assert!(server.stop().success(), "{}", server.log());
}
