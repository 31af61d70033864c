//! Modules: whatever they are, they are refused, or they run within their limits. Half of the inputs are modules as they are, the others
//! are made into modules that are valid. What is decoded of them does the same as by the interpreter.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sanwire_core::Principal;
use sanwire_device::{BlockRange, CommandProgram, JudgedCommand};
use sanwire_fuzz::program::{NoPlace, limits, made};
use sanwire_program::Program;
use sanwire_scsi::{Cdb, OperationClasses};

fuzz_target!(|input: &[u8]| {
    let Some((first, rest)) = input.split_first() else { return };
    let module = match first & 1 {
        0 => rest.to_vec(),
        _ => match made(rest) {
            Some(module) => module,
            None => return,
        },
    };
    let limits = limits();
    let described = Program::describe(&module, limits);
    let loaded = Program::load(&module, limits, Some(NoPlace::new()));
    assert_eq!(described.is_ok(), loaded.is_ok());
    let Ok(program) = loaded else { return };
    assert!(program.description().memory_bytes <= limits.memory_bytes);
    let command = JudgedCommand {
        cdb: &Cdb::from([0x2a, 0, 0, 0, 0, 100, 0, 0, 8, 0]),
        classes: OperationClasses::ALL,
        ranges: &[BlockRange { lba: 100, blocks: 8 }],
        capacity_blocks: 1000,
        block_bytes: 512,
        principal: &Principal::default(),
        principal_number: 0,
        unix_ms: 1_767_254_460_000,
        waited_ms: 0,
        data_out: rest,
    };
    let interpreted = Program::load(&module, limits, Some(NoPlace::new())).map(Program::interpreted);
    let interpreted = interpreted.expect("the same module was loaded before");
    for turn in 0..3 {
        let [judged, other] = [&program, &interpreted].map(|program| program.run(&command));
        assert!(judged.fuel <= limits.fuel);
        assert_eq!(format!("{judged:?}"), format!("{other:?}"));
        if program.description().hears_of_ends {
            assert_eq!(program.ended(turn, turn == 1), interpreted.ended(turn, turn == 1));
        }
    }
    assert_eq!(program.statistics().calls, 3);
    assert_eq!(program.statistics(), interpreted.statistics());
});
