//! The examples are decoded, and do then what the interpreter has them do: with the same fuel.

use std::sync::Arc;

use sanwire_device::CommandProgram;

use crate::commands::*;
use crate::compilers::module;

/// Commands of all kinds, in an order in which one depends on another.
fn all() -> Vec<Asked> {
    let mut record = [7; 512];
    record[510..].copy_from_slice(&[0x55, 0xaa]);
    let places = [0, 1, 7, 8, 16, 60, 2048, 4000];
    let transfers = places.map(|lba| [read(lba, 8), write(lba, 8), write(lba, 1).by(1), copied(false, lba, 8)]);
    let table = [write(0, 1).with(&record), write(0, 8).with(&[0; 512]), write(0, 1).with(&record[..100])];
    let others = [flush(), unmap(&[(0, 8), (100, 1)]), unmap(&[]), sanitize(), compare_and_write(8, 8), write(5, 0)];
    let all: Vec<Asked> = transfers.into_iter().flatten().chain(table).chain(others).collect();
    let late = all.clone().into_iter().map(|asked| asked.after_ms(8 * 3_600_000).by(256));
    all.iter().cloned().chain(late).collect()
}

#[test]
fn examples_are_judged_in_both_ways_alike() {
    for (example, is_decoded) in [
        ("read_only_by_hour.wat", true),
        ("one_writer.wat", true),
        ("partition_guard.c", true),
        ("rate_per_principal.c", true),
        ("append_only.rs", true),
        ("write_once.rs", true),
        ("copy_on_first_write.rs", true),
    ] {
        let Some(module) = module(example) else { continue };
        let ours = load(&module, &Arc::default());
        let interpreted = load(&module, &Arc::default()).interpreted();
        assert_eq!((ours.is_decoded(), interpreted.is_decoded()), (is_decoded, false), "{example}");
        for (number, asked) in all().iter().enumerate() {
            let [one, other] = [&ours, &interpreted].map(|program| judgement(program, asked).1);
            assert_eq!(format!("{one:?}"), format!("{other:?}"), "{example}, command {number}");
            if let Some(token) = one.end {
                let [one, other] = [&ours, &interpreted].map(|program| program.ended(token, number % 3 > 0));
                assert_eq!(one, other, "{example}, the end of command {number}");
            }
        }
        assert_eq!(ours.statistics(), interpreted.statistics(), "{example}");
    }
}
