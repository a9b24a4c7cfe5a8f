package cli

import "millrace/control/internal/commandline"

// Short names.
const (
	done        = commandline.Done
	failed      = commandline.Failed
	wrongUsage  = commandline.WrongUsage
	unopened    = commandline.Unopened
	interrupted = commandline.Interrupted
)

var (
	usage          = commandline.Usage
	noCommand      = commandline.NoCommand
	exactly        = commandline.Exactly
	errInterrupted = commandline.ErrInterrupted
)

type unopenedFile = commandline.UnopenedFile
