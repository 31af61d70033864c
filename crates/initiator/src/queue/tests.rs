use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;
use std::task::Wake;

use super::*;

/// Counts its wake-ups.
#[derive(Default)]
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn quiet_queue() -> OpQueue {
    OpQueue::new(Arc::new(|| panic!("nobody sleeps here")))
}

fn poll_once(submission: &mut Submission<'_>) -> Poll<Result<OpOutput, VolumeError>> {
    Pin::new(submission).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn one_thread_needs_no_notification() {
    let queue = quiet_queue();
    let channel = queue.channel();
    let counter = Arc::new(Counter::default());
    let waker = Waker::from(Arc::clone(&counter));
    let mut submission = channel.submit(OpKind::Flush);
    assert!(Pin::new(&mut submission).poll(&mut Context::from_waker(&waker)).is_pending());
    let op = queue.pop().unwrap();
    assert!(matches!(op.kind, OpKind::Flush));
    op.completer.complete(Ok(OpOutput::Done));
    assert_eq!(counter.0.load(Ordering::SeqCst), 1);
    assert!(matches!(poll_once(&mut submission), Poll::Ready(Ok(OpOutput::Done))));
}

#[test]
fn a_full_queue_serves_in_the_order_of_coming_and_skips_who_left() {
    let queue = quiet_queue();
    let channel = queue.channel();
    let mut queued: Vec<_> = (0..QUEUE_OPS_MAX).map(|_| channel.submit(OpKind::Flush)).collect();
    assert!(queued.iter_mut().all(|submission| poll_once(submission).is_pending()));
    assert_eq!(queue.len(), QUEUE_OPS_MAX);

    let discard = |offset_bytes| channel.submit(OpKind::Discard { offset_bytes, length_bytes: 0 });
    let (mut left, mut first, mut second) = (discard(1), discard(2), discard(3));
    let counter = Arc::new(Counter::default());
    let waker = Waker::from(Arc::clone(&counter));
    assert!(poll_once(&mut left).is_pending());
    assert!(Pin::new(&mut first).poll(&mut Context::from_waker(&waker)).is_pending());
    assert!(poll_once(&mut second).is_pending());
    assert_eq!(queue.len(), QUEUE_OPS_MAX, "bounded");
    drop(left);
    assert_eq!(counter.0.load(Ordering::SeqCst), 1, "the next in line hears of it");
    drop(queue.pop());
    assert!(poll_once(&mut second).is_pending());
    assert_eq!(queue.len(), QUEUE_OPS_MAX - 1, "no overtaking");
    assert!(poll_once(&mut first).is_pending());
    drop(queue.pop());
    assert!(poll_once(&mut second).is_pending());
    let order: Vec<u64> = std::iter::from_fn(|| queue.pop())
        .filter_map(|op| match op.kind {
            OpKind::Discard { offset_bytes, .. } => Some(offset_bytes),
            _ => None,
        })
        .collect();
    assert_eq!(order, [2, 3]);
}

#[test]
fn a_dropped_future_leaves_its_operation_and_the_frame_goes_home() {
    let queue = quiet_queue();
    let channel = queue.channel();
    let region = sanwire_buffer::Region::new(4096).unwrap();
    for complete_first in [false, true] {
        let buffer = region.frame(512).unwrap();
        let mut submission = channel.submit(OpKind::Read { offset_bytes: 0, buffer });
        assert!(poll_once(&mut submission).is_pending());
        let Op { kind: OpKind::Read { buffer, .. }, completer } = queue.pop().unwrap() else { unreachable!() };
        if complete_first {
            completer.complete(Ok(OpOutput::Frame(buffer)));
            assert_eq!(region.free_bytes(), 0);
            drop(submission);
        } else {
            drop(submission);
            completer.complete(Ok(OpOutput::Frame(buffer)));
        }
        assert_eq!(region.free_bytes(), region.length_bytes());
    }
}

#[test]
fn closing_fails_what_waits_and_what_comes() {
    let queue = quiet_queue();
    let channel = queue.channel();
    let mut early = channel.submit(OpKind::Flush);
    assert!(poll_once(&mut early).is_pending());
    queue.close(VolumeError::Unsupported);
    assert!(matches!(poll_once(&mut early), Poll::Ready(Err(VolumeError::Unsupported))));
    drop(queue);
    let mut late = channel.submit(OpKind::Flush);
    assert!(matches!(poll_once(&mut late), Poll::Ready(Err(VolumeError::Unsupported))), "the first reason stays");
}

#[test]
fn a_driver_that_forgets_an_operation_fails_it() {
    let queue = quiet_queue();
    let channel = queue.channel();
    let mut submission = channel.submit(OpKind::Flush);
    assert!(poll_once(&mut submission).is_pending());
    drop(queue.pop());
    assert!(matches!(poll_once(&mut submission), Poll::Ready(Err(VolumeError::Closed))));
}

#[test]
fn the_last_handle_is_news_once() {
    let (sender, notified) = mpsc::channel();
    let queue = OpQueue::new(Arc::new(move || sender.send(()).unwrap()));
    assert!(queue.prepare_to_sleep());
    queue.channel().abandon();
    notified.try_recv().expect("woken");
    queue.awake();
    assert!(!queue.prepare_to_sleep(), "must look first");
    assert!(queue.is_abandoned());
    assert!(queue.prepare_to_sleep(), "may sleep again, to say goodbye");
}

#[test]
fn a_sleeper_is_notified_once_and_work_that_came_before_forbids_sleep() {
    let (sender, notified) = mpsc::channel();
    let queue = OpQueue::new(Arc::new(move || sender.send(()).unwrap()));
    let channel = queue.channel();
    let mut early = channel.submit(OpKind::Flush);
    assert!(poll_once(&mut early).is_pending());
    assert!(notified.try_recv().is_err(), "nobody slept");
    assert!(!queue.prepare_to_sleep(), "there is work");
    drop(queue.pop());
    assert!(queue.prepare_to_sleep());
    let mut late = [channel.submit(OpKind::Flush), channel.submit(OpKind::Flush)];
    assert!(late.iter_mut().all(|submission| poll_once(submission).is_pending()));
    assert_eq!(notified.try_iter().count(), 1);
}

/// A sleeping driver, four busy submitters: a lost wake-up would hang here.
#[test]
fn no_wake_up_is_lost_between_threads() {
    const EACH: usize = 20_000;
    let (sender, bell) = mpsc::channel();
    let queue = OpQueue::new(Arc::new(move || {
        let _ = sender.send(());
    }));
    let channel = queue.channel();
    let driver = std::thread::spawn(move || {
        let mut served = 0;
        while served < 4 * EACH {
            while let Some(op) = queue.pop() {
                op.completer.complete(Ok(OpOutput::Done));
                served += 1;
            }
            if served < 4 * EACH && queue.prepare_to_sleep() {
                bell.recv_timeout(std::time::Duration::from_secs(20)).expect("a wake-up was lost");
                queue.awake();
            }
        }
    });
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..EACH {
                    crate::volume::tests::block_on(channel.submit(OpKind::Flush)).unwrap();
                }
            });
        }
    });
    driver.join().unwrap();
}
