//! A session of which a test says what its devices answer, and when.

use super::*;

/// What a device answers to a command, with its data.
pub(super) type Told = (Status, Vec<u8>, Vec<u8>);

/// A device: what it answers.
pub(super) type Device = Box<dyn FnMut(&Cdb) -> Told + Send>;

/// Devices behind all numbers; `None`: it does not answer for as long as the test lives, or until it is told to.
pub(super) type Devices = Box<dyn FnMut(Lun, &Cdb) -> Result<Told, Silence> + Send>;

/// Why a command is not answered at once.
pub(super) enum Silence {
    /// It never is.
    Never,
    /// When the gate of the test opens.
    Gated(Told),
    /// It fails on the way.
    Failed(Failure),
}

/// A session that is always there, with devices behind it, and a clock that the test moves.
pub(super) struct Scripted {
    pub(super) devices: Devices,
    pub(super) events: VecDeque<Event>,
    pub(super) orders: u64,
    pub(super) gated: Vec<Event>,
    /// Never answered, unless the server goes away.
    pub(super) unanswered: Vec<OrderId>,
    pub(super) stage: Arc<Stage>,
}

/// What a test moves.
pub(super) struct Stage {
    /// Milliseconds since the beginning.
    pub(super) now_ms: AtomicU64,
    /// What is gated is answered so many milliseconds after the beginning.
    pub(super) opens_at_ms: AtomicU64,
    /// The session begins anew, and holds what was given before.
    pub(super) is_lost: AtomicBool,
    /// The server is away for longer than the patience lasts, from the next look at the events on.
    pub(super) goes_away: AtomicBool,
    /// It has the volume no more, from the next look at the events on.
    pub(super) is_removed: AtomicBool,
    /// It is away: no command is taken.
    pub(super) is_away: AtomicBool,
    /// How many it takes that it does not answer.
    pub(super) unanswered_max: AtomicU64,
    /// So many were given all the same.
    pub(super) given_while_away: AtomicU64,
    /// What came with the command that a device is asked to answer.
    pub(super) data_out: Mutex<Vec<u8>>,
}

impl Default for Stage {
    fn default() -> Self {
        Stage {
            now_ms: AtomicU64::new(0),
            opens_at_ms: AtomicU64::new(u64::MAX),
            is_lost: AtomicBool::new(false),
            goes_away: AtomicBool::new(false),
            is_removed: AtomicBool::new(false),
            is_away: AtomicBool::new(false),
            unanswered_max: AtomicU64::new(u64::MAX),
            given_while_away: AtomicU64::new(0),
            data_out: Mutex::default(),
        }
    }
}

impl Stage {
    pub(super) fn open_gate(&self, after_ms: u64) {
        self.opens_at_ms.store(self.now_ms.load(Ordering::SeqCst) + after_ms, Ordering::SeqCst);
    }
}

impl Session for Scripted {
    fn receive(&mut self, _: Instant) -> usize {
        0
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn poll_event(&mut self) -> Option<Event> {
        if self.now() >= Instant::ZERO + Duration::from_millis(self.stage.opens_at_ms.load(Ordering::SeqCst)) {
            self.events.extend(self.gated.drain(..));
        }
        if self.stage.is_lost.swap(false, Ordering::SeqCst) {
            return Some(Event::Connected { server: array(), resumed: false });
        }
        if self.stage.goes_away.swap(false, Ordering::SeqCst) {
            self.stage.is_away.store(true, Ordering::SeqCst);
            self.events.extend(self.unanswered.drain(..).map(|id| Event::Failed {
                id,
                failure: away(),
                data_in: None,
            }));
            self.events.push_back(Event::OutOfPatience(away()));
        }
        if self.stage.is_removed.swap(false, Ordering::SeqCst) {
            self.stage.is_away.store(true, Ordering::SeqCst);
            self.events.push_back(Event::GivenUp(Failure::VolumeGone));
            let failed = |id| Event::Failed { id, failure: Failure::VolumeGone, data_in: None };
            self.events.extend(self.unanswered.drain(..).map(failed));
        }
        self.events.pop_front()
    }

    fn now(&self) -> Instant {
        Instant::ZERO + Duration::from_millis(self.stage.now_ms.load(Ordering::SeqCst))
    }

    fn transmit(&mut self, _: Instant) -> usize {
        0
    }

    fn order(&mut self, order: Order, _: Instant) -> Result<OrderId, Order> {
        if self.stage.is_away.load(Ordering::SeqCst) {
            self.stage.given_while_away.fetch_add(1, Ordering::SeqCst);
            return Err(order);
        }
        if self.unanswered.len() as u64 >= self.stage.unanswered_max.load(Ordering::SeqCst) {
            return Err(order);
        }
        let data_out = order.data_out.as_ref().map(|data| data.to_vec()).unwrap_or_default();
        *self.stage.data_out.lock().expect("no panic") = data_out;
        let told = (self.devices)(order.lun, &order.cdb);
        self.orders += 1;
        let id = OrderId(self.orders);
        let mut data_in = order.data_in;
        let is_gated = matches!(told, Err(Silence::Gated(_)));
        let (status, sense, data) = match told {
            Ok(told) | Err(Silence::Gated(told)) => told,
            Err(Silence::Never) => {
                self.unanswered.push(id);
                return Ok(id);
            }
            Err(Silence::Failed(failure)) => {
                self.events.push_back(Event::Failed { id, failure, data_in });
                return Ok(id);
            }
        };
        let room = data_in.as_mut().map_or(0, |frame| frame.len().min(data.len()));
        if let Some(frame) = &mut data_in {
            frame[..room].copy_from_slice(&data[..room]);
        }
        let answered = Event::Completed { id, answer: Answer { status, sense }, data_in, data_in_bytes: room };
        if is_gated {
            self.gated.push(answered)
        } else {
            self.events.push_back(answered)
        }
        Ok(id)
    }

    fn in_transit(&self) -> usize {
        0
    }

    fn hold_after_restart(&mut self) {}

    fn release(&mut self) {}

    fn abandon(&mut self, _: Lun) {}

    fn withdraw(&mut self, _: OrderId) {}

    fn server(&self) -> Option<ServerInfo> {
        None
    }

    fn protection(&self, _: Lun) -> Option<Protection> {
        None
    }

    fn disconnect(&mut self, _: Instant) {}

    fn wait(&mut self, _: &Waker, _: Option<Instant>) -> std::io::Result<()> {
        // Who only waits waits for that.
        self.stage.now_ms.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

pub(super) fn away() -> Failure {
    Failure::NoAnswer("it is away".into())
}
