package trestle

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/metadata"

	"trestle.dev/clients/go/pb/trestlev1"
)

// JobFailed is a job that ended and did not do what it was for. What it wanted has been taken back.
type JobFailed struct{ Job *trestlev1.JobInfo }

func (f JobFailed) Error() string {
	return fmt.Sprintf("%s: %s: %s (job %s)", f.Job.GetWhat(), f.Job.GetState(), f.Job.GetMessage(), f.Job.GetId())
}

// WaitJob waits until a job has ended. None is done. A caller who stops waiting stops nothing: the job goes on.
func (c *Client) WaitJob(ctx context.Context, job *trestlev1.JobInfo) error {
	if job == nil || job.GetState() == "done" {
		return nil
	}
	stream, err := c.Orchestrator.WatchJob(ctx, &trestlev1.JobRequest{Id: job.GetId()})
	for err == nil {
		var now *trestlev1.JobInfo
		if now, err = stream.Recv(); err == nil {
			job = now
		}
	}
	if !errors.Is(err, io.EOF) {
		return fmt.Errorf("waiting for job %s, which goes on (`trestle job get %s`; it says: %s): %w", job.GetId(), job.GetId(), job.GetMessage(), err)
	}
	if job.GetState() != "done" {
		return JobFailed{job}
	}
	return nil
}

// ChangesOf are the changes that a call made, from the header it was answered with (grpc.Header). None: it changed nothing.
func ChangesOf(header metadata.MD) []string { return header.Get("trestle-change") }

// WaitEnforced waits until every node and cloud that changes concern has them in force.
func (c *Client) WaitEnforced(ctx context.Context, changes []string) error {
	if len(changes) == 0 {
		return nil
	}
	stream, err := c.Enforcement.WatchEnforcement(ctx, &trestlev1.EnforcementRequest{Changes: changes})
	var last *trestlev1.EnforcementState
	for err == nil {
		var now *trestlev1.EnforcementState
		if now, err = stream.Recv(); err == nil {
			last = now
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	if waiting := last.GetWaiting(); len(waiting) > 0 {
		return fmt.Errorf("stored, and not in force everywhere: %s: %s: %w", waiting[0].GetPlace(), waiting[0].GetReason(), err)
	}
	return fmt.Errorf("stored; whether it is in force could not be told: %w", err)
}
