module lab/ibm-containers

go 1.22

require github.com/IBM-Cloud/bluemix-go v0.0.0-20240719075425-078fcb3a55be

require (
	github.com/ghodss/yaml v1.0.0 // indirect
	golang.org/x/net v0.19.0 // indirect
	gopkg.in/yaml.v2 v2.4.0 // indirect
)
