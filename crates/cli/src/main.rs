//! The tenure program: leader election on the store you already run.
mod exit;
mod supervise;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next().as_deref().and_then(|first| first.to_str()) {
        Some(supervise::GUARDIAN) => return supervise::guard(arguments),
        Some(supervise::STAGE) => return supervise::stage(arguments),
        _ => {}
    }
    let command: Vec<_> = std::env::args_os().skip(1).collect();
    let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    rt.block_on(async {
        let mut g = supervise::Guardian::post(&command, &[], None).unwrap();
        g.start(supervise::Work {
            environment: vec![("TENURE_TOKEN".into(), "1".into())],
            until: supervise::BootTime::now().after(std::time::Duration::from_secs(5)),
            grace: std::time::Duration::from_secs(1),
            file: None,
        })
        .unwrap();
        loop {
            let e = g.event().await;
            eprintln!("{e:?}");
            if matches!(e, supervise::Event::TreeDead { .. } | supervise::Event::GuardianDied) {
                break;
            }
        }
        g.dismiss().await;
    });
    ExitCode::SUCCESS
}
