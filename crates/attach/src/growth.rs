//! The size of an attached volume. That it has grown is told with the answer to a command only, so a volume that nobody uses is
//! asked from time to time.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

use sanwire_initiator::{Volume, VolumeError};

use crate::latch::Latch;

/// How often the size is looked at.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long an answer takes while nothing is wrong.
const ANSWER_TIME: Duration = Duration::from_millis(50);

type Question = Pin<Box<dyn Future<Output = Result<(), VolumeError>> + Send>>;

/// A thread that watches the size until this is dropped.
#[derive(Debug)]
pub(crate) struct GrowthWatch {
    stop: Latch,
    thread: Option<JoinHandle<()>>,
}

impl GrowthWatch {
    /// Calls `grown` with each size that is more than the one before.
    pub(crate) fn start(volume: Volume, grown: impl FnMut(u64) + Send + 'static) -> io::Result<Self> {
        let stop = Latch::new()?;
        let stopped = stop.clone();
        let watch = move || watch(&volume, &stopped, grown);
        let thread = std::thread::Builder::new().name("growth".into()).spawn(watch)?;
        Ok(GrowthWatch { stop, thread: Some(thread) })
    }
}

impl Drop for GrowthWatch {
    fn drop(&mut self) {
        self.stop.set();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn watch(volume: &Volume, stop: &Latch, mut grown: impl FnMut(u64)) {
    let mut size_bytes = volume.info().size_bytes;
    let mut operations = 0;
    let mut question: Option<Question> = None;
    while !stop.wait_for(INTERVAL) {
        let before = std::mem::replace(&mut operations, volume.looker().look().0.operations);
        // Who uses the volume hears the news with that.
        if question.is_none() && operations == before {
            let asked = volume.clone();
            question = Some(Box::pin(async move { asked.check().await }));
        }
        if !is_answered(&mut question) && stop.wait_for(ANSWER_TIME) {
            return;
        }
        // While the server is away there is no answer, and nothing else is asked.
        is_answered(&mut question);
        let now_bytes = volume.info().size_bytes;
        if now_bytes > size_bytes {
            grown(now_bytes);
        }
        size_bytes = now_bytes;
    }
}

/// Whether nothing is asked any more. What the answer was does not matter: who uses the volume gets its errors.
fn is_answered(question: &mut Option<Question>) -> bool {
    question.take_if(|question| question.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    question.is_none()
}
