//! The body of an answer on its way: in pieces, whose memory and whose time are counted until they are sent.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, SizeHint};

use crate::activity::Busy;
use crate::places::{Memory, Place};

/// HTTP/2 takes a piece as soon as its reader has room for one byte, and keeps the rest: so a piece is small.
const PIECE_MAX_BYTES: usize = 16 << 10;

/// Marks an answer whose bytes are in memory anyway, once for all.
#[derive(Clone, Copy)]
pub(crate) struct Shared;

/// What an answer holds until its last piece is sent.
struct Hold {
    busy: Busy,
    _memory: Option<Memory>,
}

/// The body.
pub(crate) struct Answer {
    body: Body,
    hold: Arc<Hold>,
    /// What is left of the last frame.
    rest: Bytes,
}

/// Bytes that give back what they hold when they are sent.
struct Piece {
    bytes: Bytes,
    _hold: Arc<Hold>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Answer {
    /// The answer to a request; another one where there is no memory for it.
    pub(crate) fn response(response: Response, busy: Busy, place: &Arc<Place>) -> Response<Self> {
        let is_shared = response.extensions().get::<Shared>().is_some();
        let bytes = response.body().size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
        let memory = bytes.filter(|bytes| *bytes > 0 && !is_shared).map(|bytes| place.hold(bytes)).transpose();
        let (response, memory) = match memory {
            Ok(memory) => (response, memory),
            // It is short, and so are all others then.
            Err(problem) => (problem.into_response(), None),
        };
        busy.waits_for_reader();
        let hold = Arc::new(Hold { busy, _memory: memory });
        response.map(|body| Answer { body, hold, rest: Bytes::new() })
    }

    fn next_piece(&mut self) -> Bytes {
        let bytes = self.rest.split_to(self.rest.len().min(PIECE_MAX_BYTES));
        Bytes::from_owner(Piece { bytes, _hold: Arc::clone(&self.hold) })
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.hold.busy.waits_for_reader();
        if self.rest.is_empty() {
            let polled = Pin::new(&mut self.body).poll_frame(context);
            if polled.is_pending() {
                self.hold.busy.waits_for_us();
            }
            let frame = match ready!(polled) {
                Some(Ok(frame)) => frame,
                end => return Poll::Ready(end),
            };
            match frame.into_data() {
                Ok(bytes) => self.rest = bytes,
                Err(frame) => return Poll::Ready(Some(Ok(frame))),
            }
        }
        Poll::Ready(Some(Ok(Frame::data(self.next_piece()))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (body, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower() + rest);
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}
