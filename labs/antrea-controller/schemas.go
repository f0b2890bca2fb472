package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// schemas are those of Antrea's own kinds, by version and kind: what an API server holds objects against.
var schemas = map[string]kindSchema{}

type kindSchema struct {
	structural *schema.Structural
	validator  validation.SchemaValidator
}

func readSchemas(checkout string) {
	files, err := filepath.Glob(filepath.Join(checkout, "build/charts/antrea/crds/*.yaml"))
	must(err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(err)
		var definition apiextensionsv1.CustomResourceDefinition
		must(yaml.Unmarshal(text, &definition))
		for _, version := range definition.Spec.Versions {
			if version.Schema == nil || version.Schema.OpenAPIV3Schema == nil {
				continue
			}
			var properties apiextensions.JSONSchemaProps
			must(apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(version.Schema.OpenAPIV3Schema, &properties, nil))
			structural, err := schema.NewStructural(&properties)
			must(err)
			validator, _, err := validation.NewSchemaValidator(&properties)
			must(err)
			name := fmt.Sprintf("%s/%s %s", definition.Spec.Group, version.Name, definition.Spec.Names.Kind)
			schemas[name] = kindSchema{structural, validator}
		}
	}
	if len(schemas) == 0 {
		must(fmt.Errorf("%s has no schemas under build/charts/antrea/crds", checkout))
	}
}

// refuses says why an API server would not take a document, or not as it is.
func (s kindSchema) refuses(raw json.RawMessage) string {
	var object map[string]any
	must(utiljson.Unmarshal(raw, &object))
	options := schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}
	if unknown := pruning.PruneWithOptions(object, s.structural, true, options); len(unknown) > 0 {
		return "unknown field " + unknown[0]
	}
	if errors := validation.ValidateCustomResource(nil, object, s.validator); len(errors) > 0 {
		return errors[0].Error()
	}
	return ""
}
