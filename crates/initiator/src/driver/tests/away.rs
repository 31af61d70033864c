//! A server that is away for longer than anybody waits.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// A disk of one unit. It answers no order for as long as it is silent.
fn disk(is_silent: Arc<AtomicBool>) -> Devices {
    let mut tells = caching(false, Arc::default());
    Box::new(move |_, cdb| if is_silent.load(Ordering::SeqCst) { Err(Silence::Never) } else { Ok(tells(cdb)) })
}

/// A driver with a volume whose writes are kept, and the server away for too long.
fn world() -> (Driver, Volume, Arc<Stage>) {
    let (stage, is_silent) = (Arc::<Stage>::default(), Arc::<AtomicBool>::default());
    let mut driver = driver_of(disk(Arc::clone(&is_silent)), Arc::clone(&stage));
    driver.keep_writes(1 << 20, BufferPool::new(Region::new(1 << 20).expect("memory")));
    let volume = open(&mut driver);
    assert_eq!(serve(&mut driver, volume.write(0, Frame::from(vec![0; 512]).freeze())), Ok(()));
    is_silent.store(true, Ordering::SeqCst);
    (driver, volume, stage)
}

fn look(at: u16) -> OwnCommand {
    let cdb = Cdb::from([0x12, 0, 0, 0, 36, 0]);
    OwnCommand { lun: Lun::new(at).expect("a number"), cdb, data_in_bytes: 36 }
}

#[test]
fn nothing_is_given_to_a_server_that_is_away_for_too_long() {
    let (mut driver, volume, stage) = world();
    stage.goes_away.store(true, Ordering::SeqCst);
    driver.turn();
    assert!(matches!(driver.link(), ConnectionState::Down(_)));
    let block = || Frame::from(vec![0; 512]);
    assert!(matches!(serve(&mut driver, volume.write(0, block().freeze())), Err(VolumeError::Disconnected { .. })));
    assert!(matches!(serve(&mut driver, volume.read(0, block())), Err(VolumeError::Disconnected { .. })));
    assert!(matches!(serve(&mut driver, volume.flush()), Err(VolumeError::Disconnected { .. })));
    assert!(driver.execute(Lun::default(), look(0).cdb, None, 36).is_err_and(|failure| failure == away()));
    // Somebody waits for the memory of what is kept: a flush would free it.
    driver.wants_flush = true;
    for _ in 0..10 {
        driver.turn();
    }
    assert!(driver.execute_all(&[look(0), look(1)]).iter().all(Option::is_none));
    assert_eq!(stage.given_while_away.load(Ordering::SeqCst), 0);
}

/// They find no room at first, and it when the first one has failed.
#[test]
fn of_several_commands_none_is_given_after_the_server_has_been_away_for_too_long() {
    let (mut driver, _volume, stage) = world();
    let asked = [look(0), look(1), look(2)];
    stage.unanswered_max.store(1, Ordering::SeqCst);
    stage.goes_away.store(true, Ordering::SeqCst);
    assert!(driver.execute_all(&asked).iter().all(Option::is_none), "all have failed");
    assert_eq!(stage.given_while_away.load(Ordering::SeqCst), 0);
}

fn is_gone<T>(answer: Result<T, VolumeError>) -> bool {
    matches!(answer, Err(VolumeError::Protocol { what }) if what.contains("removed or replaced"))
}

/// By wires whose session is with one volume.
#[test]
fn a_volume_that_the_server_has_no_more_is_told_as_such_to_whoever_waits_or_asks_for_it() {
    let (mut driver, volume, stage) = world();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| block_on(volume.flush()));
        while driver.waiting.is_empty() {
            driver.turn();
        }
        stage.is_removed.store(true, Ordering::SeqCst);
        while !waiting.is_finished() {
            driver.turn();
        }
        assert!(is_gone(waiting.join().expect("no panic")));
    });
    assert!(is_gone(serve(&mut driver, volume.read(0, Frame::from(vec![0; 512])))));
    assert!(matches!(driver.link(), ConnectionState::Down(Failure::VolumeGone)));
}
