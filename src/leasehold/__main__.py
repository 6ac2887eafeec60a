from leasehold.cli.main import main

main()
