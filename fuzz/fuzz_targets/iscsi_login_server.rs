//! A target's login, over TCP or by RDMA, and initiators that keep no rule: it ends, says little, and lets nobody in who has not shown who
//! he is.
#![no_main]

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use sanwire_core::Instant;
use sanwire_fuzz::iser_peer::{Carriage, Peer, message};
use sanwire_fuzz::login::{AtTarget, OneTarget, TARGET, pdu, request, sent, server, server_over, text};
use sanwire_iscsi::{LoginOutcome, ServerLogin, SessionKind};
use sanwire_iser::wire::HeaderForm;
use sanwire_iwarp::{Event, Stag};

/// How what an initiator says comes to a target.
enum Way {
    Stream,
    Rdma(Peer, HeaderForm),
}

impl Way {
    fn open(u: &mut Unstructured<'_>, carriage: Option<Carriage>) -> Result<(ServerLogin, Self)> {
        let Some(carriage) = carriage else { return Ok((server([1; 32]), Way::Stream)) };
        let (peer, mover) = Peer::meet(u, true, carriage)?;
        let form = if u.ratio(1, 4)? { HeaderForm::Rfc5046 } else { HeaderForm::Rfc7145 };
        Ok((server_over(mover, carriage, [1; 32]), Way::Rdma(peer, form)))
    }

    /// Gives how much the target has answered.
    fn say(&mut self, u: &mut Unstructured<'_>, said: &[u8], at: &mut AtTarget<'_>) -> Result<usize> {
        let Way::Rdma(peer, form) = self else {
            for piece in said.chunks(u.int_in_range(1..=400)?) {
                at.login.handle_input(piece, at.directory, Instant::ZERO);
            }
            return Ok(sent(at.login).len());
        };
        let invalidate = if u.ratio(1, 32)? { Some(Stag(u.arbitrary()?)) } else { None };
        peer.send(message(u, *form, said)?, invalidate);
        let told = peer.pass(at).into_iter();
        Ok(told.map(|event| if let Event::Message(message) = event { message.buffer.len() } else { 0 }).sum())
    }
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let carriage = Carriage::any(u)?;
    let is_guarded = u.arbitrary()?;
    let directory = OneTarget::new(is_guarded, [7; 32]);
    let (mut login, mut way) = Way::open(u, carriage)?;
    let mut at = AtTarget { login: &mut login, directory: &directory };
    if let Way::Rdma(peer, _) = &mut way {
        peer.pass(&mut at);
    }
    let mut names = format!("InitiatorName=iqn.2026-11.org.example:host\0TargetName={TARGET}\0").into_bytes();
    let mut said_bytes = 0;
    while !u.is_empty() {
        let said = if u.ratio(1, 12)? {
            u.arbitrary::<&[u8]>()?.to_vec()
        } else {
            let mut said = if u.ratio(15, 16)? { std::mem::take(&mut names) } else { vec![] };
            said.extend(text(u)?);
            pdu(request(u)?.write(), said)
        };
        said_bytes += way.say(u, &said, &mut at)?;
        assert!(said_bytes < 1 << 20, "an endless answer");
        match at.login.poll_outcome() {
            Some(LoginOutcome::Admitted(admitted)) => {
                assert!(!is_guarded, "{} has shown nothing", admitted.initiator);
                assert!(admitted.text.len() <= 8192);
                let takes_bytes = admitted.connection.send_data_max_bytes;
                let is_of_memory = carriage.is_some() && matches!(admitted.kind, SessionKind::Normal { .. });
                assert!(if is_of_memory { takes_bytes == 128 } else { takes_bytes >= 512 }, "{takes_bytes}");
                return Ok(());
            }
            Some(LoginOutcome::Refused(reason) | LoginOutcome::Redirected(reason)) => {
                assert!(reason.len() < 4096);
                return Ok(());
            }
            Some(LoginOutcome::Lost) if carriage == Some(Carriage::Adapter) => return Ok(()),
            Some(LoginOutcome::Lost) => panic!("only an adapter's connection is lost"),
            None => {}
        }
    }
    let Some(due) = login.poll_timeout() else {
        assert!(login.poll_outcome().is_some(), "what is not over has a deadline");
        return Ok(());
    };
    login.handle_timeout(due);
    assert!(matches!(login.poll_outcome(), Some(LoginOutcome::Refused(_))));
    Ok(())
}

fuzz_target!(|input: &[u8]| {
    let _ = run(&mut Unstructured::new(input));
});
