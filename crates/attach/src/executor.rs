//! Runs the futures of requests on the few threads of one attachment.
//!
//! A future is polled first on the thread that spawns it, so that its operation is with the driver at once; later on
//! the worker threads, which also send the answers.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

type BoxedFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A run queue. Clones share it. The spawner bounds how many futures it holds.
#[derive(Clone, Default)]
pub(crate) struct Executor(Arc<RunQueue>);

#[derive(Default)]
struct RunQueue {
    ready: Mutex<Ready>,
    bell: Condvar,
}

#[derive(Default)]
struct Ready {
    tasks: VecDeque<Arc<Task>>,
    rung: bool,
    stopped: bool,
    /// Workers in the bell's wait: nobody is woken (a system call) when nobody sleeps.
    asleep: usize,
}

struct Task {
    future: Mutex<Option<BoxedFuture>>,
    queued: AtomicBool,
    home: Arc<RunQueue>,
}

impl Executor {
    /// Polls the future once; what it still waits for is finished by the workers.
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        let task = Task {
            future: Mutex::new(Some(Box::pin(future))),
            queued: AtomicBool::new(false),
            home: Arc::clone(&self.0),
        };
        Arc::new(task).run();
    }

    /// Works until [`Executor::stop`]; calls `after_batch` whenever nothing is ready or somebody rang.
    pub(crate) fn work(&self, mut after_batch: impl FnMut()) {
        loop {
            while let Some(task) = self.0.pop() {
                task.run();
            }
            after_batch();
            let mut ready = self.0.lock();
            while ready.tasks.is_empty() && !ready.rung && !ready.stopped {
                ready.asleep += 1;
                ready = self.0.bell.wait(ready).unwrap_or_else(PoisonError::into_inner);
                ready.asleep -= 1;
            }
            if ready.stopped && !ready.rung && ready.tasks.is_empty() {
                return;
            }
            ready.rung = false;
        }
    }

    /// Makes a worker call its `after_batch` soon.
    pub(crate) fn ring(&self) {
        let mut ready = self.0.lock();
        ready.rung = true;
        self.0.wake_one(ready);
    }

    /// Lets the workers end once nothing is ready. A future that still waits is dropped when it is woken.
    pub(crate) fn stop(&self) {
        self.0.lock().stopped = true;
        self.0.bell.notify_all();
    }
}

impl RunQueue {
    fn pop(&self) -> Option<Arc<Task>> {
        self.lock().tasks.pop_front()
    }

    fn wake_one(&self, ready: MutexGuard<'_, Ready>) {
        let somebody_sleeps = ready.asleep > 0;
        drop(ready);
        if somebody_sleeps {
            self.bell.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Ready> {
        // Nothing panics while the lock is held.
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Task {
    fn run(self: Arc<Self>) {
        // Cleared before the poll: a wake-up during it queues the task again.
        self.queued.store(false, Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(&self));
        let mut slot = self.future.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(future) = slot.as_mut()
            && future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
        {
            *slot = None;
        }
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if !self.queued.swap(true, Ordering::SeqCst) {
            let home = Arc::clone(&self.home);
            let mut ready = home.lock();
            if ready.stopped {
                // The last owner goes: the future is dropped, after the lock.
                drop(ready);
                return;
            }
            ready.tasks.push_back(self);
            home.wake_one(ready);
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs one future on this thread, which sleeps while it waits.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    // Most futures here are ready at once: no waker is made for those.
    if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        return output;
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// Pending once, waking itself from another thread.
    async fn hop() {
        let mut hopped = false;
        std::future::poll_fn(move |context| {
            if hopped {
                return Poll::Ready(());
            }
            hopped = true;
            let waker = context.waker().clone();
            std::thread::spawn(move || waker.wake());
            Poll::Pending
        })
        .await;
    }

    #[test]
    fn every_future_ends_on_the_workers() {
        let executor = Executor::default();
        let done = Arc::new(AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let workers = [(); 3].map(|()| scope.spawn(|| executor.work(|| ())));
            for _ in 0..100 {
                let done = Arc::clone(&done);
                executor.spawn(async move {
                    hop().await;
                    hop().await;
                    done.fetch_add(1, Ordering::SeqCst);
                });
            }
            while done.load(Ordering::SeqCst) < 100 {
                std::thread::yield_now();
            }
            executor.stop();
            workers.into_iter().for_each(|worker| worker.join().unwrap());
        });
    }

    #[test]
    fn a_ring_is_answered_even_when_it_comes_with_the_stop() {
        let executor = Executor::default();
        executor.ring();
        executor.stop();
        let mut batches = 0;
        executor.work(|| batches += 1);
        assert_eq!(batches, 2);
    }
}
