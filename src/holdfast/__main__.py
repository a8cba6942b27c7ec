from holdfast.cli import main

main()
