;; One writer at a time: who has written last is the only one that may write, until it has written nothing for 30 seconds.
;;
;; So a file system that is no cluster file system is safe on a device that several hosts see: a standby host takes over by itself, and
;; not as long as the active one writes. Reservations do the same by command; this needs nothing of the hosts.
(module
  (memory (export "memory") 1)
  (global (export "sanwire_abi_1") i32 (i32.const 0))

  ;; The header: command at 1024, answer at 2048, no ranges, no data, no state, and the classes to judge: write (04h), discard (08h) and
  ;; copy target (80h).
  (data (i32.const 0)
    "\00\04\00\00" "\00\08\00\00"
    "\00\00\00\00\00\00\00\00" "\00\00\00\00\00\00\00\00" "\00\00\00\00\00\00\00\00"
    "\8c\00\00\00" "\00\00\00\00\00\00\00\00\00\00\00\00")

  ;; The number of the writer plus 1, or 0; and the time of its last write in milliseconds. Number 256 stands for all that came later than
  ;; the first 256: where there are so many, these count as one.
  (global $writer (mut i32) (i32.const 0))
  (global $wrote_ms (mut i64) (i64.const 0))

  (func (export "judge") (result i32)
    (local $who i32)
    (local $now_ms i64)
    (local.set $who (i32.add (i32.load offset=1116 (i32.const 0)) (i32.const 1))) ;; the principal's number is at 92
    (local.set $now_ms (i64.load offset=1104 (i32.const 0)))                      ;; the time is at 80
    (if (i32.and
          (i32.ne (global.get $writer) (local.get $who))
          (i64.lt_u (local.get $now_ms) (i64.add (global.get $wrote_ms) (i64.const 30000))))
      (then
        (i32.store offset=2048 (i32.const 0) (i32.const 0x002707)) ;; DATA PROTECT, WRITE PROTECTED: 07h 27h 00h
        (return (i32.const 2))))                                   ;; refuse
    (global.set $writer (local.get $who))
    (global.set $wrote_ms (local.get $now_ms))
    (i32.const 1)))                                                ;; allow
