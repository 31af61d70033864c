//! A target's login and initiators that keep no rule: it ends, says little, and lets nobody in who has not shown who he is.
#![no_main]

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use sanwire_core::Instant;
use sanwire_fuzz::login::{OneTarget, TARGET, pdu, request, sent, server, text};
use sanwire_iscsi::LoginOutcome;

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let is_guarded = u.arbitrary()?;
    let directory = OneTarget::new(is_guarded, [7; 32]);
    let mut server = server([1; 32]);
    let mut names = format!("InitiatorName=iqn.2026-11.org.example:host\0TargetName={TARGET}\0").into_bytes();
    let mut said_bytes = 0;
    while !u.is_empty() {
        let stream = if u.ratio(1, 12)? {
            u.arbitrary::<&[u8]>()?.to_vec()
        } else {
            let mut said = if u.ratio(15, 16)? { std::mem::take(&mut names) } else { vec![] };
            said.extend(text(u)?);
            pdu(request(u)?.write(), said)
        };
        for piece in stream.chunks(u.int_in_range(1..=400)?) {
            server.handle_input(piece, &directory, Instant::ZERO);
        }
        said_bytes += sent(&mut server).len();
        assert!(said_bytes < 1 << 20, "an endless answer");
        match server.poll_outcome() {
            Some(LoginOutcome::Admitted(admitted)) => {
                assert!(!is_guarded, "{} has shown nothing", admitted.initiator);
                assert!(admitted.text.len() <= 8192 && admitted.connection.send_data_max_bytes >= 512);
                return Ok(());
            }
            Some(LoginOutcome::Refused(reason) | LoginOutcome::Redirected(reason)) => {
                assert!(reason.len() < 4096);
                return Ok(());
            }
            Some(LoginOutcome::Lost) => panic!("only an adapter's connection is lost"),
            None => {}
        }
    }
    let due = server.poll_timeout().expect("what is not over has a deadline");
    server.handle_timeout(due);
    assert!(matches!(server.poll_outcome(), Some(LoginOutcome::Refused(_))));
    Ok(())
}

fuzz_target!(|input: &[u8]| {
    let _ = run(&mut Unstructured::new(input));
});
