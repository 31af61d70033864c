use super::*;
use crate::parking::block_on;
use crate::test_volume;

fn load(reads_percent: u8, pattern: Pattern) -> Load {
    Load {
        block_bytes: 4096,
        depth: 8,
        reads_percent,
        pattern,
        time: Duration::from_millis(50),
        range: ByteRange { start_bytes: 64 << 10, end_bytes: 128 << 10 },
        seed: 7,
    }
}

#[test]
fn the_load_stays_in_its_range_and_every_operation_is_counted() {
    for (reads_percent, pattern) in [(100, Pattern::Random), (0, Pattern::Sequential), (50, Pattern::Random)] {
        let volume = test_volume::serve(test_volume::info(1 << 20, 512), |op| match op {
            sanwire_initiator::OpKind::Read { offset_bytes, .. }
            | sanwire_initiator::OpKind::Write { offset_bytes, .. } => {
                let is_inside = (64 << 10..128 << 10).contains(offset_bytes) && offset_bytes.is_multiple_of(4096);
                (!is_inside).then_some(VolumeError::Unsupported)
            }
            _ => Some(VolumeError::Unsupported),
        });
        let load = load(reads_percent, pattern);
        let until = Instant::now() + Duration::from_secs(60);
        let measured = loop {
            let measured = block_on(measure(&volume, &load)).unwrap();
            let is_missing =
                (reads_percent > 0 && measured.reads == 0) || (reads_percent < 100 && measured.writes == 0);
            // A thread that was halted has begun nothing, or little, in so short a time.
            if !is_missing || Instant::now() > until {
                break measured;
            }
        };
        assert_eq!(measured.reads > 0, reads_percent > 0);
        assert_eq!(measured.writes > 0, reads_percent < 100);
        assert!(measured.elapsed >= load.time && measured.cpu > Duration::ZERO);
        let url = "hs+ip://box/disk".parse().unwrap();
        let json = measured.to_json(&url, &load);
        assert_eq!(json["reads"], measured.reads);
        assert!(json["iops"].as_f64().unwrap() > 0.0);
        assert!(measured.describe(&url, &load).contains(&format!("{reads_percent} % reads, depth 8")));
    }
}

#[test]
fn a_failed_operation_ends_the_measurement() {
    let volume = test_volume::serve(test_volume::info(1 << 20, 512), |_| Some(VolumeError::NoSpace));
    let load = Load { time: Duration::from_secs(60), ..load(100, Pattern::Random) };
    let result = block_on(measure(&volume, &load));
    assert_eq!(result.unwrap_err(), VolumeError::NoSpace);
}

#[test]
fn sequential_goes_round_and_random_reaches_everything() {
    let sequential = load(100, Pattern::Sequential);
    let mut order = Order::new(&sequential);
    let offsets: Vec<u64> = (0..17).map(|_| order.next(&sequential).0).collect();
    assert_eq!((offsets[0], offsets[15], offsets[16]), (64 << 10, (128 << 10) - 4096, 64 << 10));
    let random = load(30, Pattern::Random);
    let mut order = Order::new(&random);
    let drawn: Vec<(u64, bool)> = (0..2000).map(|_| order.next(&random)).collect();
    let distinct: std::collections::BTreeSet<u64> = drawn.iter().map(|(offset, _)| *offset).collect();
    assert_eq!(distinct.len(), 16);
    let reads = drawn.iter().filter(|(_, is_read)| *is_read).count();
    assert!((500..700).contains(&reads), "{reads}");
}
