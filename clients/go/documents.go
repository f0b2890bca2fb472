package trestle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"

	"trestle.dev/clients/go/pb/trestlev1"
)

// Documents reads Kubernetes-style objects from YAML of several documents or from JSON. Each is one object as JSON.
func Documents(text []byte) ([][]byte, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var documents [][]byte
	for number := 1; ; number++ {
		var document map[string]any
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", number, err)
		}
		if document == nil {
			continue
		}
		written, err := json.Marshal(document)
		if err != nil {
			return nil, fmt.Errorf("document %d is no object of JSON: %w", number, err)
		}
		documents = append(documents, written)
	}
}

// Apply stores objects, all or none: YAML or JSON as `trestle apply` takes it.
func (c *Client) Apply(ctx context.Context, text []byte) ([]*trestlev1.Applied, error) {
	documents, err := Documents(text)
	if err != nil {
		return nil, err
	}
	answer, err := c.Objects.ApplyObjects(ctx, &trestlev1.ApplyObjectsRequest{Documents: documents})
	return answer.GetApplied(), err
}
