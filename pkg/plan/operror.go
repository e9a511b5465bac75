package plan

import "fmt"

// OpError says that an operation failed, and why.
type OpError struct {
	Op  Op
	Err error
}

// Error names the operation first.
func (e *OpError) Error() string { return fmt.Sprintf("%s: %v", e.Op, e.Err) }

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }
