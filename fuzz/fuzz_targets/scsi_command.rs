//! Command blocks, and every answer that an initiator reads.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sanwire_scsi::mode::ModeData;
use sanwire_scsi::{
    BlockCommand, Capacity, Cdb, CommandSet, CommandStandard, DeviceIdentification, Features, ModeForm,
    MultimediaCommand, PrimaryCommand, Sense, StandardInquiry,
};

/// What is wrong with a command block for a device of these commands.
fn refusal(commands: CommandSet, cdb: &Cdb) -> Option<Sense> {
    let operation = match commands.find(cdb) {
        Ok(operation) => operation,
        Err(sense) => return Some(sense),
    };
    match operation.standard {
        CommandStandard::Primary => PrimaryCommand::parse(operation, cdb).err(),
        CommandStandard::Block => BlockCommand::parse(operation, cdb).err(),
        CommandStandard::Multimedia => MultimediaCommand::parse(operation, cdb).err(),
    }
}

fuzz_target!(|input: &[u8]| {
    for length in 1..=input.len().min(Cdb::MAX_BYTES) {
        let Some(cdb) = Cdb::new(&input[..length]) else { continue };
        let disks = [(false, false), (false, true), (true, false), (true, true)]
            .map(|(thin, atomic)| CommandSet::disk(Features { thin, atomic, tokens: thin == atomic }));
        for commands in disks.into_iter().chain([CommandSet::optical()]) {
            if let Some(sense) = refusal(commands, &cdb) {
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
