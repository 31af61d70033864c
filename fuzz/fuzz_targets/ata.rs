//! Task files, IDENTIFY DEVICE data and ranges of TRIM, whatever is in them: no panic; a command ends after a bounded number of steps, and
//! what reaches the unit lies on the disk.
#![no_main]

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use sanwire_ata::{Drive, Execution, Host, IdentifyDevice, Plan, Step, TaskFile};
use sanwire_buffer::{Slice, Slices};
use sanwire_scsi::{BlockCommand, Capacity, Cdb, CommandSet, CommandStandard, Features, Reply, Status, UnmapList};

const SECTORS: u64 = 5000;

/// A command begins anew for each unit attention, and asks as much as it takes: no more than this.
const STEPS_MAX: usize = 10_000;

fn task_file(u: &mut Unstructured<'_>) -> Result<TaskFile> {
    let (command, device): (u8, u8) = u.arbitrary()?;
    Ok(if u.arbitrary()? {
        TaskFile::long(command, u.arbitrary()?, u.arbitrary()?, u.arbitrary()?, device)
    } else {
        TaskFile::short(command, u.arbitrary()?, u.arbitrary()?, u.arbitrary()?, device)
    })
}

/// What a unit answers: mostly what it should, now and then anything.
fn answer(u: &mut Unstructured<'_>, cdb: &Cdb, room_bytes: u32) -> Result<Reply> {
    if u.ratio(1, 8)? {
        let status = Status::from_code(u.arbitrary()?).unwrap_or(Status::CheckCondition);
        let sense = u.arbitrary::<Vec<u8>>()?.into_iter().take(64).collect();
        return Ok(Reply { sense, ..Reply::bare(status) });
    }
    let capacity = Capacity {
        blocks: SECTORS,
        block_bytes: 512,
        physical_block_exponent: 0,
        provisioning_management: true,
        reads_zeroes: true,
    };
    let data = match cdb.operation_code() {
        0x9e => capacity.to_sixteen().to_vec(),
        0x12 | 0x1a => u.arbitrary::<Vec<u8>>()?,
        _ => vec![0; room_bytes as usize],
    };
    Ok(Reply::good(Some(Slices::from(data))))
}

/// What reaches the unit is a command that it has, within its bounds.
fn check(cdb: &Cdb, data: Option<&Slices>) {
    let operation = CommandSet::disk(Features::ALL).find(cdb).expect("a command of a disk");
    if operation.standard != CommandStandard::Block {
        return;
    }
    let within = |lba: u64, blocks: u32| assert!(lba + u64::from(blocks) <= SECTORS, "{cdb:?}");
    match BlockCommand::parse(operation, cdb).expect("its fields") {
        BlockCommand::Read { extent } | BlockCommand::Write { extent, .. } | BlockCommand::WriteSame { extent, .. } => {
            within(extent.lba, extent.blocks);
        }
        BlockCommand::Unmap { .. } => {
            let list = data.expect("its list").contiguous();
            let list = UnmapList::parse(&list).expect("a list");
            list.extents().for_each(|extent| within(extent.lba, extent.blocks));
        }
        _ => {}
    }
}

/// As it may come: in two pieces.
fn in_pieces(data: Vec<u8>) -> Slices {
    let whole = Slice::from(data);
    let middle = whole.len() / 3;
    Slices::join([whole.slice(0..middle), whole.slice(middle..whole.len())].into_iter()).expect("two pieces")
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let mut drive = Drive::default();
    for _ in 0..u.int_in_range(1..=8)? {
        let data: Option<Vec<u8>> = u.arbitrary()?;
        let (mut execution, mut step) = Execution::begin(task_file(u)?, data.map(in_pieces), &mut drive);
        let mut steps = 0;
        while let Step::Ask(ask) | Step::Later(ask) = step {
            steps += 1;
            assert!(steps < STEPS_MAX, "it never ends");
            check(&ask.cdb, ask.data_out.as_ref());
            step = execution.answered(answer(u, &ask.cdb, ask.data_in_max_bytes)?, &mut drive);
        }
    }
    let Ok(disk) = IdentifyDevice::parse(u.bytes(512)?) else { return Ok(()) };
    let sectors = disk.sectors;
    let Some(host) = Host::new("7.3", disk) else { return Ok(()) };
    while !u.is_empty() {
        let (cdb, data): ([u8; 16], Vec<u8>) = u.arbitrary()?;
        if let Plan::Do(work) = host.plan(&Cdb::from(cdb), &data)
            && let Some(extent) = work.changes(0, work.parts().min(255))
        {
            assert!(extent.lba + u64::from(extent.blocks) <= sectors, "{work:?}");
        }
    }
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    // It may run out of input.
    let _ = run(&mut Unstructured::new(bytes));
});
