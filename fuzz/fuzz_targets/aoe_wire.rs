//! What reads as a value is written and read again as the same value, and nothing is read that is not there.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sanwire_aoe::wire::{AtaHeader, Config, Header, MaskRequest, Reserve};

fuzz_target!(|input: &[u8]| {
    let Some((header, argument)) = Header::parse(input) else { return };
    // Whatever the version of a message, what is written is of version 1.
    let again = Header { version: 1, ..header };
    assert_eq!(Header::parse(&header.to_bytes()), Some((again, &[][..])));
    if let Some((ata, data)) = AtaHeader::parse(argument) {
        assert!(argument.ends_with(data));
        assert_eq!(AtaHeader::parse(&ata.to_bytes()), Some((ata, &[][..])));
        let task_file = ata.task_file();
        let written = AtaHeader::of(&task_file, !data.is_empty()).expect("its fields have 8 bits");
        assert_eq!(written.task_file(), task_file);
    }
    if let Some(config) = Config::parse(argument) {
        assert_eq!(Config::parse(&config.to_bytes()).as_ref(), Some(&config));
        let _ = config.order();
    }
    if let Some(reserve) = Reserve::parse(argument) {
        assert_eq!(Reserve::parse(&reserve.to_bytes()).as_ref(), Some(&reserve));
    }
    if let Some(Ok(mask)) = MaskRequest::parse(argument) {
        assert!(argument.len() >= 4 + 8 * mask.directives.len(), "{mask:?}");
    }
});
