//! Command blocks, and every answer that an initiator reads.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sanwire_scsi::mode::ModeData;
use sanwire_scsi::{Capacity, Cdb, Command, DeviceIdentification, Features, ModeForm, Sense, StandardInquiry};

fuzz_target!(|input: &[u8]| {
    for length in 1..=input.len().min(Cdb::MAX_BYTES) {
        let Some(cdb) = Cdb::new(&input[..length]) else { continue };
        for (thin, atomic) in [(false, false), (false, true), (true, false), (true, true)] {
            if let Err(sense) = Command::parse(&cdb, Features { thin, atomic }) {
                assert_eq!(Sense::parse(&sense.to_fixed()).map(|read| read.key), Some(sense.key));
                assert_eq!(Sense::parse(&sense.to_descriptor()).map(|read| read.key), Some(sense.key));
            }
        }
    }
    let _ = Sense::parse(input);
    let _ = StandardInquiry::parse(input);
    let _ = Capacity::parse_sixteen(input);
    if let Ok(page) = DeviceIdentification::parse(input) {
        let _ = (page.identity(), page.naa());
    }
    for form in [ModeForm::Six, ModeForm::Ten] {
        if let Ok(data) = ModeData::parse(form, input) {
            let _ = (data.pages().count(), data.write_cache());
        }
    }
});
