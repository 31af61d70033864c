//! Texts: what is read as pairs is written and read again as the same pairs, however it is cut.
#![no_main]
#![allow(dead_code, reason = "the source of another crate, of which a part is used")]

#[path = "../../crates/protocol/iscsi/src/text.rs"]
mod text;

use libfuzzer_sys::fuzz_target;
use text::{TEXT_MAX_BYTES, TextGathering, TextWriter, parse};

fuzz_target!(|input: &[u8]| {
    let Some((&piece, input)) = input.split_first() else { return };
    let piece = usize::from(piece) + 1;
    let Ok(pairs) = parse(input) else { return };
    let mut writer = TextWriter::default();
    pairs.iter().for_each(|(key, value)| writer.push(key, value));
    let mut gathering = TextGathering::default();
    while !writer.is_empty() {
        let (segment, continues) = writer.cut(piece);
        assert!(segment.len() <= piece && continues != writer.is_empty());
        gathering.add(&segment).expect("no longer than it was");
    }
    let again = gathering.take();
    assert!(again.len() <= TEXT_MAX_BYTES);
    assert_eq!(parse(&again), Ok(pairs));
});
