# no-warnings.sh: the kernel has found nothing wrong with itself.
. /rig/jobs/lib.sh

! dmesg | grep -A 3 -E 'WARNING:|BUG:' || fail 'the kernel complains'
